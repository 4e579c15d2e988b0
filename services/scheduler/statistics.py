"""How the queue stands: counts with a bound, so that asking costs the same whatever waits."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

BOUND = 10_000  # the literal in sql/read_*_stats.sql and read_totals.sql
SHOWN = 1_000  # of the gauges, which are read again and again


@dataclass(frozen=True, slots=True)
class Count:
    """Exact, or `at_least` this many."""

    count: int
    at_least: bool


@dataclass(frozen=True, slots=True)
class LaneStats:
    channel: str
    due: Count
    scheduled: Count
    waiting: Count
    processing: Count
    lag: timedelta | None
    """None: nobody knows, for others' entries fill what is looked at."""
    stranded: bool
    """Something is due, and no worker that lives serves the lane."""


# How a notification ends, in the order in which it is told.
ENDS = ("SENT", "FAILED", "DEAD_LETTERED", "CANCELLED", "EXPIRED", "SUPPRESSED")

# Channel and status -> how many ended so, since ever.
Totals: TypeAlias = Mapping[tuple[str, str], Count]


@dataclass(frozen=True, slots=True)
class WebhookStats:
    unassigned: Count
    pending: Count
    given_up: Count
