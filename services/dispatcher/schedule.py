"""When to try again: the schedule of Standard Webhooks."""

import random
from dataclasses import dataclass, field
from datetime import timedelta

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


@dataclass(frozen=True, slots=True)
class Schedule:
    dice: random.Random = field(default_factory=random.Random, repr=False, compare=False)

    def delay(self, attempt: int) -> timedelta:
        """How long to wait after attempt number `attempt`, from 1. Past the end the last delay is repeated."""
        full = DELAYS[min(max(attempt, 1), len(DELAYS) - 1)]
        return full * self.dice.uniform(1 - JITTER, 1 + JITTER)
