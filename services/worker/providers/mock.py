"""The sandbox's provider, over HTTP: it deduplicates on the delivery key, so its answers can be put to the test."""

import json
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Self

from services.worker.providers import Answer, Handover, Message, Outcome, Provider, safe_code
from services.worker.providers.answers import Reply
from services.worker.providers.http import Http, Unanswered

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
    timeout: float = 10.0
    """From the start to the end of the answer."""


class Mock(Provider):
    """Delivers on any channel."""

    name = "mock"

    def __init__(self, settings: MockSettings, channel: str) -> None:
        self._url = f"{settings.url.rstrip('/')}/mock/deliver"
        self._http = Http(timeout=settings.timeout)
        self._channel = channel

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.__aexit__()

    async def deliver(self, message: Message, handover: Handover) -> Outcome:
        try:
            body = self._body(message)
        except (TypeError, ValueError):
            return Outcome(Answer.PERMANENT_MESSAGE, "message-malformed")
        try:
            return _judge(await self._http.post(self._url, body, {"Content-Type": "application/json"}, handover))
        except Unanswered as unanswered:
            return unanswered.outcome

    def _body(self, message: Message) -> bytes:
        fields = {
            "delivery_key": str(message.delivery_key),
            "attempt": message.attempt,
            "channel": self._channel,
            "address": message.address,
            "content": dict(message.content),
        }
        return json.dumps(fields).encode()


def _judge(reply: Reply) -> Outcome:
    status = str(reply.status)
    answer = next(answer for pattern, answer in STATUSES if fnmatchcase(status, pattern))
    if answer is Answer.ACCEPTED:  # also where its id cannot be read
        found = reply.text("message_id")
        return Outcome(answer, status, provider_message_id=safe_code(found) if found else None)
    if answer is Answer.THROTTLED:
        return Outcome(answer, status, not_before=reply.retry_after or THROTTLED_REST)
    return Outcome(answer, status)
