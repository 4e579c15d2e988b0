"""An SMTP server that says what a test wants, and does what no real one may."""

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from enum import Enum
from typing import Any, Protocol, Self
from uuid import uuid4

from services.worker.providers import Handover, Message, Outcome
from services.worker.providers.smtp import Smtp, SmtpSettings, Tls

CONTENT = {"subject": "Hello", "text": "Hello\n"}
# For where a timeout is the point: before the final dot, or after it.
IMPATIENT = {"connect_timeout": 0.5, "command_timeout": 0.5}
IMPATIENT_AFTER_DOT = {"answer_timeout": 0.3}


class Do(Enum):
    """What a server does instead of answering, or after it has."""

    HANG = 1
    CLOSE = 2
    RESET = 3


# An answer: a line, raw bytes, something done, or several of these; a list is used up one item per command.
Act = str | bytes | Do
Reply = Act | tuple[Act, ...]
Replies = Mapping[str, Reply | list[Reply]]

POLITE: Replies = {
    "GREETING": "220 test",
    "EHLO": "250 test",
    "DATA": "354 go",
    "DOT": "250 2.0.0 kept",
    "QUIT": ("221 bye", Do.CLOSE),
}


class Server:
    """Follows one set of replies per connection, the last one for all further ones, and notes what it is sent."""

    def __init__(self, *connections: Replies) -> None:
        self._scripts: list[Replies] = [{**POLITE, **script} for script in connections or ({},)]
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self.opened = 0
        self.commands: list[str] = []
        self.bodies: list[bytes] = []
        self.body_arrived = asyncio.Event()
        self.all_closed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections)

    @property
    def verbs(self) -> Counter[str]:
        return Counter(command.split(" ")[0] for command in self.commands)

    def hang_up(self) -> None:
        """Closes every connection, out of the blue."""
        for writer in self._connections.values():
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        self.all_closed.clear()
        script = self._scripts[min(self.opened, len(self._scripts) - 1)]
        self.opened += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._converse(reader, _Mouth(writer, script))
        finally:
            writer.close()
            del self._connections[task]
            if not self._connections:
                self.all_closed.set()

    async def _converse(self, reader: asyncio.StreamReader, mouth: "_Mouth") -> None:
        await mouth.answer("GREETING")
        while line := await reader.readline():
            self.commands.append(line.decode().rstrip())
            verb = self.commands[-1].split(" ")[0]
            reply = await mouth.answer(verb)
            if verb == "DATA" and str(reply).startswith("354"):
                self.bodies.append(await reader.readuntil(b"\r\n.\r\n"))
                self.body_arrived.set()
                await mouth.answer("DOT")


class _Mouth:
    """What one connection says."""

    def __init__(self, writer: asyncio.StreamWriter, script: Replies) -> None:
        self._writer = writer
        self._script = script
        self._used: Counter[str] = Counter()

    async def answer(self, verb: str) -> Reply:
        reply = self._script.get(verb, "250 ok")
        if isinstance(reply, list):
            reply = reply[min(self._used[verb], len(reply) - 1)]
        self._used[verb] += 1
        for act in reply if isinstance(reply, tuple) else (reply,):
            await self._do(act)
        return reply

    async def _do(self, act: Act) -> None:
        match act:
            case str():
                self._writer.write(f"{act}\r\n".encode())
            case bytes():
                self._writer.write(act)
            case Do.HANG:
                await asyncio.Event().wait()
            case Do.CLOSE:
                self._writer.close()
                raise ConnectionAbortedError
            case Do.RESET:
                connection = self._writer.get_extra_info("socket")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self._writer.transport.abort()
                raise ConnectionAbortedError


class Start(Protocol):
    async def __call__(self, *connections: Replies, **settings: Any) -> tuple[Smtp, Server]: ...


@asynccontextmanager
async def starting() -> AsyncIterator[Start]:
    """What starts a server with these replies, and a provider with these settings that uses it."""
    async with AsyncExitStack() as stack:

        async def start(*connections: Replies, **settings: Any) -> tuple[Smtp, Server]:
            server = await stack.enter_async_context(Server(*connections))
            defaults: dict[str, Any] = {"tls": Tls.NONE}
            chosen = SmtpSettings(
                host="127.0.0.1", port=server.port, sender="notify@example.com", **defaults | settings
            )
            smtp = Smtp(chosen)
            await stack.enter_async_context(smtp)
            return smtp, server

        yield start


async def deliver(
    smtp: Smtp, address: str = "anna@example.org", content: Mapping[str, object] = CONTENT
) -> tuple[Outcome, bool]:
    """The outcome, and whether the handover had begun."""
    handover = Handover()
    outcome = await smtp.deliver(Message(uuid4(), 1, address, content), handover)
    return outcome, handover.begun
