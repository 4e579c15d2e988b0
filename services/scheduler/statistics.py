"""How the queue stands: counts with a bound, so that asking costs the same whatever waits."""

from dataclasses import dataclass
from datetime import timedelta

BOUND = 10_000  # the literal in sql/read_*_stats.sql


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
    processing: Count
    lag: timedelta | None
    """None: nobody knows, for others' entries fill what is looked at."""


@dataclass(frozen=True, slots=True)
class WebhookStats:
    unassigned: Count
    pending: Count
    given_up: Count
