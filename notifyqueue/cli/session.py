"""What every command has: the options that say whom to call and how, and one way for errors to end it."""

import asyncio
import inspect
import os
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import grpc.aio
import typer

from notifyqueue import Client, connect
from notifyqueue.channel import KEY, TIMEOUT, Tls, is_loopback
from notifyqueue.cli import exits, tracing
from notifyqueue.cli.output import Output
from notifyqueue.cli.values import to_span
from notifyqueue.errors import DeadlineExceeded, NotifyQueueError, Unavailable

API_KEY = "NOTIFYQUEUE_API_KEY"

# Of gRPC's targets those with a scheme are left to it.
ADDRESS = re.compile(
    r"(dns|ipv4|ipv6|unix|unix-abstract|xds):.+|(\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+):(?P<port>[0-9]{1,5})"
)

TO_PLAIN = "it was called by TLS: --plaintext, where the server has none"
TO_TLS = "it was called in plain text: --tls, where the server wants that"

PLACES = {
    "scheduler": ("NOTIFYQUEUE_ADDRESS", "127.0.0.1:50051"),
    "worker": ("NOTIFYQUEUE_WORKER_ADDRESS", "127.0.0.1:50052"),
    "dispatcher": ("NOTIFYQUEUE_DISPATCHER_ADDRESS", "127.0.0.1:50053"),
}


@dataclass(frozen=True, slots=True)
class Options:
    address: str | None
    tls: bool | None
    ca_file: Path | None
    api_key_file: Path | None
    timeout: timedelta | None
    json: bool


def _options(
    *,
    address: Annotated[
        str | None,
        typer.Option(help="Whom to call. Default: NOTIFYQUEUE_ADDRESS, else 127.0.0.1:50051.", metavar="HOST:PORT"),
    ] = None,
    tls: Annotated[
        bool | None,
        typer.Option("--tls/--plaintext", help="Default: TLS, but for an address on this machine.", show_default=False),
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option(envvar="NOTIFYQUEUE_CA_FILE", help="Trust these certificates (PEM), and use TLS."),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(envvar="NOTIFYQUEUE_API_KEY_FILE", help=f"Where the API key is. Default: what {API_KEY} says."),
    ] = None,
    timeout: Annotated[
        timedelta | None,
        typer.Option(
            parser=to_span,
            metavar="SPAN",
            help="How long a call may take. Default: 10s; in `batch` 1m; in `watch` any.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> Options:
    return Options(address, tls, ca_file, api_key_file, timeout, json)


class How(TypedDict):
    api_key: str | None
    tls: Tls
    timeout: timedelta
    interceptors: Sequence[grpc.aio.ClientInterceptor]


@dataclass(frozen=True, slots=True)
class Session:
    """A command under way."""

    options: Options
    output: Output

    def scheduler(self, timeout: timedelta = TIMEOUT) -> AbstractAsyncContextManager[Client]:
        """`timeout` is how long a call may take unless the option says."""
        return connect(self.address("scheduler"), **self.how(timeout))

    def address(self, place: str) -> str:
        variable, default = PLACES[place]
        if self.options.address is not None:
            return _checked("--address", self.options.address)
        return _checked(variable, os.environ.get(variable) or default)

    def encrypts(self, address: str) -> bool:
        """Whether it calls this address by TLS."""
        if self.options.tls is None and not self.options.ca_file:
            return not is_loopback(address)
        return self.options.tls is not False

    def how(self, timeout: timedelta = TIMEOUT) -> How:
        """The rest of what `connect` asks for."""
        tls: Tls = self.options.tls
        if self.options.ca_file:
            if tls is False:
                raise typer.BadParameter("--ca-file is for TLS, and --plaintext is without")
            tls = self.options.ca_file
        return How(
            api_key=self._api_key(),
            tls=tls,
            timeout=self.options.timeout or timeout,
            interceptors=tracing.interceptors(),
        )

    def _api_key(self) -> str | None:
        file = self.options.api_key_file
        key = (file.read_text() if file else os.environ.get(API_KEY, "")).strip()
        if file and not key:
            raise typer.BadParameter(f"{file}: is empty")
        if key and not KEY.fullmatch(key):
            raise typer.BadParameter(f"the API key of {file or API_KEY} has characters that no key has")
        return key or None


def _checked(source: str, address: str) -> str:
    found = ADDRESS.fullmatch(address)
    if not found or (found["port"] and not 0 < int(found["port"]) < 65_536):
        raise typer.BadParameter(f"{source}: is written as HOST:PORT, as {PLACES['scheduler'][1]}")
    return address


Command = Callable[..., Awaitable[int | None]]


def command(place: str = "scheduler") -> Callable[[Command], Callable[..., None]]:
    """Makes of `async def run(session, …)` what typer calls: with the options of all commands, and no exception but its
    exit code. `place` is whom it calls, in what is said when nobody answers."""

    def decorate(run: Command) -> Callable[..., None]:
        common = inspect.signature(_options).parameters

        def called(**given: Any) -> None:
            options = _options(**{name: given.pop(name) for name in common})
            session = Session(options, Output(as_json=options.json))
            raise typer.Exit(_run(run, session, session.address(given.get("process", place)), given))

        own = list(inspect.signature(run).parameters.values())[1:]
        signature = inspect.Signature(
            [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *common.values())]
        )
        called.__signature__ = signature  # type: ignore[attr-defined]
        called.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
        called.__name__, called.__doc__ = run.__name__, run.__doc__
        return called

    return decorate


def _run(run: Command, session: Session, address: str, given: dict[str, Any]) -> int:
    output = session.output

    async def within() -> int:
        return await run(session, **given) or exits.OK

    try:
        code = asyncio.run(within())
        sys.stdout.flush()
    except NotifyQueueError as error:
        if type(error) in (Unavailable, DeadlineExceeded) and not error.request_id:  # nobody of ours said so
            error.add_note(TO_PLAIN if session.encrypts(address) else TO_TLS)
        output.failed(error, address=address)
        return exits.exit_code(error)
    except KeyboardInterrupt:
        output.problem("interrupted", code=exits.INTERRUPTED)
        return exits.INTERRUPTED
    except BrokenPipeError:  # whoever read this has seen enough; what is flushed at the end must go somewhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.OK
    except OSError as error:
        output.problem(f"{error.filename or 'input or output'}: {error.strerror}", code=exits.USAGE)
        return exits.USAGE
    return code
