"""What becomes of a delivery after an attempt. Pure: no I/O, no clock."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from services.dispatcher.schedule import Schedule

GONE = 410
# Too many requests, and what a proxy says for a server that is away: asking again for the next delivery helps nobody.
BUSY = frozenset({429, 502, 503, 504})
LONGEST_GUESS = timedelta(minutes=1)


class ErrorClass(StrEnum):
    """Why an attempt was not answered with 2xx."""

    STATUS = "STATUS"
    TIMEOUT = "TIMEOUT"
    CONNECTION = "CONNECTION"
    PROTOCOL = "PROTOCOL"
    DNS = "DNS"
    TLS = "TLS"
    ADDRESS_BLOCKED = "ADDRESS_BLOCKED"
    ENDPOINT_INVALID = "ENDPOINT_INVALID"


class GiveUpReason(StrEnum):
    EXHAUSTED = "EXHAUSTED"
    GONE = "GONE"


@dataclass(frozen=True, slots=True)
class Answer:
    """How one attempt ended: with a status, with an error, or, if the status was not 2xx, with both."""

    status: int | None = None
    error: ErrorClass | None = None
    retry_after: timedelta = timedelta()

    @classmethod
    def of_status(cls, status: int, retry_after: timedelta = timedelta()) -> "Answer":
        """2xx is success and nothing else is: a redirect is not followed, and has not arrived."""
        return cls(status) if 200 <= status <= 299 else cls(status, ErrorClass.STATUS, retry_after)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Delivered, given up, or due again after `delay`; `pause` is for all that waits for the endpoint."""

    delivered: bool = False
    give_up_reason: GiveUpReason | None = None
    delay: timedelta | None = None
    pause: timedelta | None = None


def judge(answer: Answer, attempt: int, max_attempts: int, schedule: Schedule) -> Verdict:
    """`attempt` counts from 1."""
    if answer.error is None:
        return Verdict(delivered=True)
    if answer.status == GONE:
        return Verdict(give_up_reason=GiveUpReason.GONE)
    delay = max(schedule.delay(attempt), answer.retry_after)
    pause = _pause(answer, delay)
    if attempt >= max_attempts:
        return Verdict(give_up_reason=GiveUpReason.EXHAUSTED, pause=pause)
    return Verdict(delay=delay, pause=pause)


def _pause(answer: Answer, delay: timedelta) -> timedelta | None:
    if answer.retry_after:
        return answer.retry_after
    return min(delay, LONGEST_GUESS) if answer.status in BUSY else None
