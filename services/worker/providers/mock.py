"""The sandbox's provider, over HTTP: it deduplicates on the delivery key, so its answers can be put to the test."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Self

import aiohttp

from services.worker.providers import Answer, Handover, Message, Outcome, Provider, safe_code

RETRY_AFTER_CAP = timedelta(hours=24)
THROTTLED_REST = timedelta(seconds=30)

# By status, the first that fits. Whatever a 5xx says, the request was read, and may have been carried out.
STATUSES = (
    ("2??", Answer.ACCEPTED),
    ("408", Answer.TRANSIENT),
    ("422", Answer.PERMANENT_ADDRESS),
    ("425", Answer.TRANSIENT),  # refused unread (RFC 8470)
    ("429", Answer.THROTTLED),
    ("40[1345]", Answer.MISCONFIGURED),
    ("4??", Answer.PERMANENT_MESSAGE),
    ("3??", Answer.MISCONFIGURED),  # redirects are not followed
    ("*", Answer.UNKNOWN),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MockSettings:
    """Durations are seconds."""

    url: str = "http://127.0.0.1:58080"
    """Of the sandbox."""
    connect_timeout: float = 5.0
    timeout: float = 10.0
    """From the start to the end of the answer."""


class Mock(Provider):
    """Delivers on any channel."""

    name = "mock"

    def __init__(self, settings: MockSettings, channel: str) -> None:
        self._url = f"{settings.url.rstrip('/')}/mock/deliver"
        self._timeout = aiohttp.ClientTimeout(total=settings.timeout, sock_connect=settings.connect_timeout)
        self._channel = channel

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),  # the lane bounds it
            timeout=self._timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def deliver(self, message: Message, handover: Handover) -> Outcome:
        try:
            body = self._body(message)
        except (TypeError, ValueError):
            return Outcome(Answer.PERMANENT_MESSAGE, "message-malformed")
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        try:
            async with self._session.post(
                self._url, data=_sent(body, handover), headers=headers, allow_redirects=False
            ) as response:
                return await _judge(response)
        except TimeoutError:
            return _silence(handover, "timeout")
        except aiohttp.ClientError:
            return _silence(handover, "closed")

    def _body(self, message: Message) -> bytes:
        fields = {
            "delivery_key": str(message.delivery_key),
            "attempt": message.attempt,
            "channel": self._channel,
            "address": message.address,
            "content": dict(message.content),
        }
        return json.dumps(fields).encode()


async def _sent(body: bytes, handover: Handover) -> AsyncIterator[bytes]:
    """Asked for when the connection is up and the headers are out, and not before."""
    handover.begin()
    yield body


async def _judge(response: aiohttp.ClientResponse) -> Outcome:
    status = str(response.status)
    answer = next(answer for pattern, answer in STATUSES if fnmatchcase(status, pattern))
    if answer is Answer.ACCEPTED:
        return Outcome(answer, status, provider_message_id=await _message_id(response))
    if answer is Answer.THROTTLED:
        return Outcome(answer, status, not_before=_retry_after(response.headers.get("Retry-After", "")))
    return Outcome(answer, status)


async def _message_id(response: aiohttp.ClientResponse) -> str | None:
    """The provider's id, if the answer is what it should be. It was accepted even if not."""
    try:
        return safe_code((await response.json())["message_id"])
    except (aiohttp.ClientError, TimeoutError, ValueError, LookupError, TypeError):
        return None


def _retry_after(text: str) -> timedelta:
    """RFC 9110, section 10.2.3, in seconds; the date form is not used by the sandbox."""
    if not (text.isascii() and text.isdigit()):
        return THROTTLED_REST
    return min(timedelta(seconds=int(text[:9])), RETRY_AFTER_CAP)


def _silence(handover: Handover, how: str) -> Outcome:
    if handover.begun:
        return Outcome(Answer.UNKNOWN, f"answer-{how}")
    return Outcome(Answer.TRANSIENT, f"connect-{how}")
