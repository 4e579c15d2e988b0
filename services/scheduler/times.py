"""When a notification may be due: judged by the database's clock and the tenant's bounds."""

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
