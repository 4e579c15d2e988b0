"""How much a tenant may bring in: so many a second over time, and at most a burst at once. Pure.

The generic cell rate algorithm (ITU-T I.371): all that is remembered of a tenant is when its bucket would be empty of
debt, and each acceptance moves that on by the interval that its rate allows. Whole microseconds, as the database keeps
them, rounded against the caller: so in any span of time no more goes in than `burst` and what the rate allows in it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Limit:
    rate: Fraction
    """Acceptances a second."""
    burst: int

    def spent_by(self, count: int) -> int:
        """The microseconds in which so many are allowed, rounded up."""
        return -self.saved_by(-count)

    def saved_by(self, count: int) -> int:
        """The same, rounded down."""
        return count * 1_000_000 * self.rate.denominator // self.rate.numerator


@dataclass(frozen=True, slots=True)
class Bucket:
    """What a tenant has used of its limit."""

    limit: Limit
    now: datetime
    empty_at: datetime

    @property
    def _debt(self) -> int:
        # More than a burst is owed only where the limit was changed or the database's clock was put back: let that be
        # no longer wait than a burst is.
        owed = (self.empty_at - self.now) // MICROSECOND
        return min(max(owed, 0), self.limit.spent_by(self.limit.burst))

    def wait(self, before: int) -> timedelta:
        """How long until one more goes in, after `before` others; at once where it is not above zero."""
        return (self._debt - self.limit.saved_by(self.limit.burst - 1 - before)) * MICROSECOND

    def charged(self, count: int) -> datetime:
        """When it is empty after so many went in."""
        return self.now + (self._debt + self.limit.spent_by(count)) * MICROSECOND


def plan(tenants: Sequence[str], buckets: Mapping[str, Bucket]) -> list[timedelta | None]:
    """For requests of these tenants, in the order in which they came: None where it goes in, or when to come back.

    Those that are refused are sent back one behind the other, or they would all return for the same place.
    """
    came: Counter[str] = Counter()
    waits: list[timedelta | None] = []
    for tenant in tenants:
        bucket = buckets.get(tenant)
        wait = bucket.wait(came[tenant]) if bucket else timedelta()
        waits.append(wait if wait > timedelta() else None)
        came[tenant] += 1
    return waits


def charges(written: Iterable[str], buckets: Mapping[str, Bucket]) -> dict[str, datetime]:
    """When the buckets of those whose requests went in are empty, ascending. `written` has a tenant for each."""
    counts = Counter(tenant for tenant in written if tenant in buckets)
    return {tenant: buckets[tenant].charged(count) for tenant, count in sorted(counts.items())}
