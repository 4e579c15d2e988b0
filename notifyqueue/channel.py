"""The connection to a server: encrypted or not, what is repeated by itself, how long a call may take."""

import ipaddress
import json
import re
from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Self, TypeVar

import grpc
import grpc.aio

from notifyqueue.errors import from_call

TIMEOUT = timedelta(seconds=10)
MAX_MESSAGE = 4 * 1024 * 1024  # of bytes, either way; as the server has it

# A key stands in a header, and one with a line break in it would be quoted by the exception that refuses it.
KEY = re.compile(r"[!-~]{1,512}")

# UNAVAILABLE and nothing else. To repeat a call is right for nearly all of them: reads change nothing, cancel, pause
# and drain change nothing twice, and what is scheduled has an idempotency key, so that a second arrival is answered
# with what the first one stored. Not for those that take so many of what fits: each arrival takes the next.
# RESOURCE_EXHAUSTED would come back at once to a server that has just said that it has too much to do: gRPC does not
# look at google.rpc.RetryInfo, which the caller gets as `retry_after`.
NEVER_REPEATED = ("BulkCancelNotifications", "BulkRedriveNotifications")
SERVICE_CONFIG = {
    "methodConfig": [
        {"name": [{"service": "notifyqueue.v1.Scheduler", "method": method} for method in NEVER_REPEATED]},
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.2s",
                "maxBackoff": "3s",
                "backoffMultiplier": 3,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        },
    ]
}

OPTIONS: Sequence[tuple[str, int | str]] = (
    ("grpc.enable_retries", 1),
    ("grpc.service_config", json.dumps(SERVICE_CONFIG)),
    # What is larger than this buffer is sent once and never repeated, and the default is 256 KiB.
    ("grpc.per_rpc_retry_buffer_size", 2 * MAX_MESSAGE),
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    # The defaults come back after one second at first, and after two minutes at last.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    # More often than every 20 s would be refused by the server.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)

Tls = bool | Path | grpc.ChannelCredentials | None

Request = TypeVar("Request")
Response = TypeVar("Response")


class Connection:
    """A channel, the key that goes with each call, and the longest that a call may take."""

    def __init__(
        self,
        address: str,
        *,
        api_key: str | None,
        tls: Tls,
        timeout: timedelta,
        interceptors: Sequence[grpc.aio.ClientInterceptor] = (),
    ) -> None:
        """Raises ValueError for what cannot be a key or an address."""
        if api_key is not None and not KEY.fullmatch(api_key):
            raise ValueError("api_key: has characters that no key has")  # and is not repeated here
        if not address:
            raise ValueError("address: is required")
        self._address = address
        self._credentials = _credentials(address, tls)
        # Plain metadata: grpc.aio leaks the credentials object of each call that has one (grpc/grpc#43193).
        self._metadata = (("authorization", f"Bearer {api_key}"),) if api_key is not None else ()
        self._timeout = timeout
        self._interceptors = interceptors

    async def __aenter__(self) -> Self:
        self.channel = (
            grpc.aio.secure_channel(self._address, self._credentials, OPTIONS, interceptors=self._interceptors)
            if self._credentials
            else grpc.aio.insecure_channel(self._address, OPTIONS, interceptors=self._interceptors)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()

    async def call(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        *,
        within: timedelta | None = None,
    ) -> Response:
        """The answer. Raises NotifyQueueError."""
        seconds = (self._timeout if within is None else within).total_seconds()
        try:
            return await method(request, timeout=seconds, metadata=self._metadata, wait_for_ready=False)
        except grpc.aio.AioRpcError as error:
            raise from_call(error) from error

    async def stream(
        self,
        method: grpc.aio.UnaryStreamMultiCallable[Request, Response],
        request: Request,
        *,
        within: timedelta | None = None,
    ) -> AsyncGenerator[Response, None]:
        """The answers, for as long as the server wants, or at most so long. Raises NotifyQueueError."""
        seconds = None if within is None else within.total_seconds()
        call = method(request, timeout=seconds, metadata=self._metadata, wait_for_ready=False)
        try:
            async for answer in call:
                yield answer
        except grpc.aio.AioRpcError as error:
            raise from_call(error) from error
        finally:
            call.cancel()  # where nobody wants the rest


def is_loopback(address: str) -> bool:
    """Whether all of an address as gRPC writes it is on this machine for certain."""
    if address.startswith(("unix:", "unix-abstract:")):
        return True
    hosts = re.sub(r"^(dns|ipv4|ipv6):(//[^/]*/)?", "", address)
    return all(_is_loopback_host(host) for host in hosts.split(","))


def _is_loopback_host(host: str) -> bool:
    host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _credentials(address: str, tls: Tls) -> grpc.ChannelCredentials | None:
    if tls is None:
        tls = not is_loopback(address)
    if isinstance(tls, Path):
        return grpc.ssl_channel_credentials(tls.read_bytes())
    if isinstance(tls, bool):
        return grpc.ssl_channel_credentials() if tls else None
    return tls
