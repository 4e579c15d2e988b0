"""One HTTP request to a provider: what it answered, or what it means that it did not.

Nothing here sends a request twice: redirects are not followed, and the library repeats only what is idempotent by its
method, which POST is not. Variables that name a proxy are ignored: what is in an environment by chance must not see
what is sent.
"""

import json
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Self

import aiohttp

from services.worker import spans
from services.worker.providers import Answer, Handover, Outcome
from services.worker.providers.answers import Reply
from services.worker.providers.connection import CONNECT_TIMEOUT
from shared.retry_after import http_date, retry_after

# Providers' answers are a few hundred bytes. What is longer is none of theirs.
MAX_ANSWER = 64 * 1024
# Providers keep an idle connection for a minute or more. A request that meets one just closed would be in doubt.
KEEPALIVE = 10.0

# In this order, because aiohttp's classes inherit from one another and from the built-in ones.
FAULTS: Sequence[tuple[tuple[type[BaseException], ...], str]] = (
    ((aiohttp.ClientConnectorDNSError,), "unresolved"),
    ((aiohttp.ClientConnectorCertificateError, ssl.SSLCertVerificationError), "certificate"),
    ((aiohttp.ClientSSLError, ssl.SSLError), "tls"),
    ((TimeoutError,), "timeout"),
    ((ConnectionRefusedError,), "refused"),
    ((aiohttp.ClientConnectionError, OSError), "closed"),
    ((aiohttp.ClientError,), "malformed"),
)


class Unanswered(Exception):
    """There was no answer. `outcome` is what that means: it depends on whether the request was handed over."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.code)
        self.outcome = outcome


class Http:
    """Connections to one provider. How many there are at once is bounded by the lane."""

    def __init__(self, *, timeout: float) -> None:
        """`timeout` in seconds holds for all of a request: lookup, connection, answer."""
        connect = min(CONNECT_TIMEOUT, timeout)
        self._timeout = aiohttp.ClientTimeout(total=timeout, connect=connect, sock_connect=connect)

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE),
            timeout=self._timeout,
            headers={"User-Agent": "NotifyQueue/1", "Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], handover: Handover) -> Reply:
        """Raises Unanswered."""
        with spans.call(spans.http(url)) as span:
            try:
                reply = await self._post(url, body, headers, handover)
            except Unanswered as unanswered:
                spans.answered(span, unanswered.outcome)
                raise
            spans.replied(span, reply.status)
            return reply

    async def _post(self, url: str, body: bytes, headers: Mapping[str, str], handover: Handover) -> Reply:
        sized = {**headers, "Content-Length": str(len(body))}
        try:
            response = await self._session.post(url, data=_sent(body, handover), headers=sized, allow_redirects=False)
        except Exception as error:
            if how := _fault(error):
                raise Unanswered(silence(handover, how)) from None
            raise
        # From here on the status says whether it was taken; the body, which of its reasons a refusal had.
        async with response:
            now = http_date(response.headers.get("Date", ""))  # the provider's, as a Retry-After that is a date
            asked = retry_after(response.headers.get("Retry-After", ""), now)
            return Reply(response.status, await _read(response), asked)


def silence(handover: Handover, how: str) -> Outcome:
    """What it means that nothing was answered."""
    if handover.begun:
        return Outcome(Answer.UNKNOWN, f"answer-{how}")
    return Outcome(Answer.TRANSIENT, f"connect-{how}")


async def _sent(body: bytes, handover: Handover) -> AsyncIterator[bytes]:
    """Asked for when the connection is up, and not before; without the body a request is not whole."""
    handover.begin()
    yield body


async def _read(response: aiohttp.ClientResponse) -> object:
    whole = bytearray()
    try:
        while len(whole) < MAX_ANSWER and (part := await response.content.read(MAX_ANSWER - len(whole))):
            whole += part
        return json.loads(whole)  # what was cut off is none
    except (aiohttp.ClientError, OSError, ValueError, RecursionError):  # OSError: timeouts, too
        return None


def _fault(error: Exception) -> str | None:
    """None for what has nothing to do with the network."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    for kinds, name in FAULTS:
        if isinstance(error, kinds) or isinstance(cause, kinds):
            return name
    return None
