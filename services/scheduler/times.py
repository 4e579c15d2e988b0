"""When a notification may be due and expire: judged by the database's clock and the tenant's bounds."""

from datetime import datetime, timedelta
from typing import Protocol

from shared.errors import Violation


class Bounds(Protocol):
    """What time it is, and how far from it a due time may lie."""

    @property
    def now(self) -> datetime: ...
    @property
    def horizon(self) -> timedelta: ...
    @property
    def past_grace(self) -> timedelta: ...


def due_time(due: datetime | timedelta | None, now: datetime) -> datetime:
    return now + due if isinstance(due, timedelta) else due or now


def due_field(due: datetime | timedelta | None) -> str:
    """What a request calls it."""
    return "delay" if isinstance(due, timedelta) else "due_time"


def judge_due(due: datetime | timedelta | None, bounds: Bounds) -> list[Violation]:
    time, name = due_time(due, bounds.now), due_field(due)
    found = []
    if time < bounds.now - bounds.past_grace:
        found.append(Violation(name, f"is more than {bounds.past_grace} in the past"))
    if time > bounds.now + bounds.horizon:
        found.append(Violation(name, f"is more than {bounds.horizon} ahead"))
    return found


def judge_times(
    due: datetime | timedelta | None, expiry: datetime | timedelta | None, bounds: Bounds
) -> list[Violation]:
    """Whether a new request's times make sense now."""
    found = judge_due(due, bounds)
    if expiry is not None and not found:
        found += _judge_expiry(expiry, due_time(due, bounds.now), bounds.now)
    return found


def _judge_expiry(expiry: datetime | timedelta, due: datetime, now: datetime) -> list[Violation]:
    expire = due + expiry if isinstance(expiry, timedelta) else expiry
    name = "ttl" if isinstance(expiry, timedelta) else "expire_time"
    if expire <= due:
        return [Violation(name, "must be after it is due")]
    if expire <= now:
        return [Violation(name, "has passed already")]
    return []
