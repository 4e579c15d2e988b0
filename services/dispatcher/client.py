"""Posts webhooks and reads of the answer what decides: one shared session, bounded in time, size and destination."""

import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Self

import aiohttp

from services.dispatcher.egress import AddressBlocked, Egress, GuardedResolver
from services.dispatcher.outcome import Answer, ErrorClass
from shared.retry_after import retry_after

CONNECT_TIMEOUT = 5.0
# How much of an answer is read, so that its connection can be used again. None of it is kept.
MAX_ANSWER = 16 * 1024
# Shorter than servers keep an idle connection (gunicorn 2 s, Node and uvicorn 5 s): a post that meets one just closed
# is a failed attempt, since only the endpoint knows whether it arrived.
KEEPALIVE = 1.5

HEADERS = {
    "content-type": "application/json",
    "accept-encoding": "identity",
    "user-agent": "NotifyQueue-Webhooks/1",
}

# In this order, because aiohttp's classes inherit from one another and from the built-in ones.
ERROR_CLASSES: Sequence[tuple[tuple[type[Exception], ...], ErrorClass]] = (
    ((aiohttp.ClientConnectorDNSError,), ErrorClass.DNS),
    ((aiohttp.ClientSSLError, ssl.SSLError), ErrorClass.TLS),
    ((TimeoutError,), ErrorClass.TIMEOUT),
    ((aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError, ValueError), ErrorClass.ENDPOINT_INVALID),
    ((aiohttp.ClientConnectionError, OSError), ErrorClass.CONNECTION),
    ((aiohttp.ClientError,), ErrorClass.PROTOCOL),
)


@dataclass(frozen=True, slots=True)
class Post:
    url: str
    headers: Mapping[str, str]
    body: bytes
    sent_at: datetime


class Client:
    """Does not limit how many posts are under way: whoever calls does, before an endpoint's clock begins to run."""

    def __init__(self, egress: Egress, *, timeout: float) -> None:
        """`timeout` in seconds holds for all of a post: lookup, connection, answer."""
        self._egress = egress
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=min(CONNECT_TIMEOUT, timeout))

    async def __aenter__(self) -> Self:
        self._resolver = GuardedResolver(self._egress)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                resolver=self._resolver,
                socket_factory=self._egress.open_socket,
                limit=0,
                keepalive_timeout=KEEPALIVE,
            ),
            headers=HEADERS,
            timeout=self._timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        await self._resolver.close()

    async def post(self, post: Post) -> Answer:
        """Whatever goes wrong between here and an endpoint is an answer; what is raised is a fault of ours."""
        try:
            response = await self._session.post(post.url, data=post.body, headers=post.headers, allow_redirects=False)
        except Exception as error:
            if found := error_class(error):
                return Answer(error=found)
            raise
        # From here on the status has decided: an answer that is cut, slow or endless changes nothing.
        async with response:
            await _read_some(response)
        return Answer.of_status(response.status, retry_after(response.headers.get("retry-after", ""), post.sent_at))


async def _read_some(response: aiohttp.ClientResponse) -> None:
    left = MAX_ANSWER
    with suppress(aiohttp.ClientError, OSError):
        while left > 0 and (part := await response.content.read(left)):
            left -= len(part)
    if not response.content.at_eof():
        response.close()


def error_class(error: Exception) -> ErrorClass | None:
    """Of what was raised before there was a status; none for what has nothing to do with the endpoint."""
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, AddressBlocked):
        return ErrorClass.ADDRESS_BLOCKED
    return next((found for kinds, found in ERROR_CLASSES if isinstance(error, kinds)), None)
