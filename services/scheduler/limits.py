"""How much a tenant may bring in: so many a second over time, at most a burst at once, and no more than may wait. Pure.

The generic cell rate algorithm (ITU-T I.371): all that is remembered of a tenant is when its bucket would be empty of
debt, and each acceptance moves that on by the interval that its rate allows. Whole microseconds, as the database keeps
them, rounded against the caller: so in any span of time no more goes in than `burst` and what the rate allows in it.

A quota bounds what is PENDING. That is not counted for each acceptance: what was counted once, and what has gone in
since, is at least as many as there are, but for what comes back (a redrive, a retry); only where it leaves no room are
they counted again, once a second at most.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from shared.errors import ApiError, QuotaExceeded, TenantLimitExceeded

MICROSECOND = timedelta(microseconds=1)
RECOUNT = timedelta(seconds=1)
MANY = 100_000
"""Of a quota that is larger, what is PENDING is counted again so many times less often as it is larger."""


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


@dataclass(frozen=True, slots=True)
class Quota:
    """How many of a tenant's notifications may be PENDING, and what is known of how many are."""

    most: int
    now: datetime
    pending: int
    """When they were counted, and what has gone in since."""
    counted_at: datetime | None

    @property
    def room(self) -> int:
        return self.most - self.pending

    @property
    def counted_lately(self) -> bool:
        rest = RECOUNT * max(1.0, self.most / MANY)
        return self.counted_at is not None and timedelta() <= self.now - self.counted_at < rest

    def is_unclear(self, count: int) -> bool:
        """Whether they are to be counted before so many more go in, or are refused."""
        return count > 0 and (self.counted_at is None or (count > self.room and not self.counted_lately))


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


def refusals(
    tenants: Sequence[str], buckets: Mapping[str, Bucket], quotas: Mapping[str, Quota]
) -> list[ApiError | None]:
    """For requests of these tenants, in the order in which they came: None where it goes in, or why it does not.

    A quota refuses only by a count of late. It comes first: to wait for the limit would not help.
    """
    came: Counter[str] = Counter()
    found: list[ApiError | None] = []
    for tenant, wait in zip(tenants, plan(tenants, buckets), strict=True):
        quota = quotas.get(tenant)
        if quota and quota.counted_lately and came[tenant] >= quota.room:
            found.append(QuotaExceeded("pending notification"))
        else:
            found.append(TenantLimitExceeded(wait) if wait else None)
        came[tenant] += 1
    return found


def charges(written: Iterable[str], buckets: Mapping[str, Bucket]) -> dict[str, datetime]:
    """When the buckets of those whose requests went in are empty, ascending. `written` has a tenant for each."""
    counts = Counter(tenant for tenant in written if tenant in buckets)
    return {tenant: buckets[tenant].charged(count) for tenant, count in sorted(counts.items())}
