"""How a process drains: the phases it passes, and how long an operator may have it wait."""

from datetime import timedelta
from enum import StrEnum

from shared.errors import RequestInvalid, Violation

MAX_TIMEOUT = timedelta(hours=1)


class Phase(StrEnum):
    RUNNING = "RUNNING"
    """It takes work."""
    DRAINING = "DRAINING"
    """It takes nothing new and finishes what runs."""
    DRAINED = "DRAINED"
    """It holds nothing."""


def drain_timeout(asked: timedelta | None, default: float) -> float:
    """Seconds to wait for what runs. Raises RequestInvalid."""
    if asked is None:
        return default
    if not timedelta() <= asked <= MAX_TIMEOUT:
        raise RequestInvalid([Violation("timeout", "must be from 0 to 1 hour")])
    return asked.total_seconds()
