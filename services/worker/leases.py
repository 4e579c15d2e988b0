"""Leases: as long as a worker lives, what it holds stays its own."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Self

from services.worker.claim import Claim
from services.worker.store import Store
from shared.clock import tick
from shared.errors import DatabaseUnavailable
from shared.loop import Loop

RENEWALS_PER_LEASE = 4


class Leases:
    """Renews every claim that is held, in one statement, four times a lease."""

    def __init__(
        self,
        store: Store,
        *,
        lease: timedelta,
        held: Callable[[], Iterable[Claim]],
        on_lost: Callable[[Claim], None],
    ) -> None:
        """`held` answers the claims to renew; `on_lost` is told each that is somebody else's, or nobody's."""
        self._store = store
        self._lease = lease
        self._held = held
        self._on_lost = on_lost
        self._cut_off_at = tick()  # a process that starts may do so because all were cut off
        self._renewed_at = tick()
        self.interval = lease.total_seconds() / RENEWALS_PER_LEASE
        self._loop = Loop("leases", self.renew)

    async def __aenter__(self) -> Self:
        await self._loop.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._loop.__aexit__()

    @property
    def unsettled(self) -> bool:
        """Whether this worker began, or was cut off, less than one renewal ago: others may have been as well."""
        return self._stood_still or tick() - self._cut_off_at < self.interval

    def cut_off(self) -> None:
        """The database did not answer this worker."""
        self._cut_off_at = tick()

    async def renew(self) -> float:
        """One turn: answers in how many seconds the next is due."""
        claims = list(self._held())
        if claims:
            try:
                lost = await self._store.renew_leases(claims, self._lease)
            except DatabaseUnavailable:
                self.cut_off()
                return min(1.0, self.interval)
            for claim in claims:
                if claim.notification_id in lost:
                    self._on_lost(claim)
        if self._stood_still:
            self.cut_off()
        self._renewed_at = tick()
        return self.interval

    @property
    def _stood_still(self) -> bool:
        """Whether this process, or its machine, stood still: what expired meanwhile may be its own."""
        return tick() - self._renewed_at > 2 * self.interval
