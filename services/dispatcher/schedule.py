"""When to try again: the schedule of Standard Webhooks, and what an endpoint's Retry-After asks for."""

import random
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

# Before attempt 1, 2, 3 … (the example in the specification of Standard Webhooks).
DELAYS = (
    timedelta(),
    timedelta(seconds=5),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=10),
    timedelta(hours=14),
    timedelta(hours=20),
    timedelta(hours=24),
)
JITTER = 0.2

LONGEST_WAIT = timedelta(hours=24)
LONGEST_VALUE = 64  # characters; an HTTP date has 29
SECONDS = re.compile(r"[0-9]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Schedule:
    dice: random.Random = field(default_factory=random.Random, repr=False, compare=False)

    def delay(self, attempt: int) -> timedelta:
        """How long to wait after attempt number `attempt`, from 1. Past the end the last delay is repeated."""
        full = DELAYS[min(max(attempt, 1), len(DELAYS) - 1)]
        return full * self.dice.uniform(1 - JITTER, 1 + JITTER)


def retry_after(value: str, now: datetime) -> timedelta:
    """What a Retry-After asks for (RFC 9110, 10.2.3: seconds or a date), at most a day; nothing if it makes no sense.

    Whoever answers writes it, so whatever it is, it raises nothing.
    """
    value = value.strip()
    if SECONDS.fullmatch(value):
        digits = value.lstrip("0")  # a long number is not read: Python refuses thousands of digits
        return min(timedelta(seconds=int(digits or "0")), LONGEST_WAIT) if len(digits) <= 6 else LONGEST_WAIT
    if len(value) > LONGEST_VALUE:
        return timedelta()
    try:
        moment = parsedate_to_datetime(value)
        wait = moment.replace(tzinfo=moment.tzinfo or UTC) - now
    except (ValueError, TypeError, OverflowError, IndexError):
        return timedelta()
    return min(max(wait, timedelta()), LONGEST_WAIT)
