"""Equal jitter over capped exponential backoff."""

import random
from dataclasses import dataclass, field
from datetime import timedelta

MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Backoff:
    """At least half of the backoff is kept, so that a delay never collapses; the other half spreads the herd.

    Equal jitter as in M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    """

    base: timedelta = timedelta(seconds=2)
    cap: timedelta = timedelta(minutes=15)
    dice: random.Random = field(default_factory=random.Random, repr=False, compare=False)

    def delay(self, attempt: int) -> timedelta:
        """How long to wait after attempt number `attempt`, from 1."""
        doublings = min(max(attempt, 1) - 1, 32)  # beyond that every cap has long been reached
        microseconds = min((self.base // MICROSECOND) << doublings, self.cap // MICROSECOND)  # no timedelta is as long
        full = timedelta(microseconds=microseconds)
        return full / 2 + full / 2 * self.dice.random()
