"""Sweeps, on every worker and led by none: claims whose worker is gone, notifications whose time is over."""

from collections.abc import Callable
from datetime import timedelta
from typing import Self

import structlog

from services.worker.claim import ExpiredClaim
from services.worker.leases import Leases
from services.worker.outcome import Ended, Later, judge_expired
from services.worker.store import Record, Store, WorkerStore
from shared.backoff import Backoff
from shared.errors import DatabaseUnavailable
from shared.loop import Loop

log = structlog.get_logger()

MAX_INTERVAL = 5.0


class Recovery:
    """Decides about expired claims, in the transaction that found them, and ends what expired."""

    def __init__(
        self,
        store: WorkerStore,
        leases: Leases,
        *,
        lease: timedelta,
        backoff: Backoff,
        on_end: Callable[[], None],
        on_retry: Callable[[str, Later], None],
    ) -> None:
        self._store = store
        self._leases = leases
        self._lease = lease
        self._backoff = backoff
        self._on_end = on_end
        self._on_retry = on_retry
        self._interval = min(lease.total_seconds() / 4, MAX_INTERVAL)
        self._loop = Loop("recovery", self.sweep)

    async def __aenter__(self) -> Self:
        await self._loop.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._loop.__aexit__()

    async def sweep(self) -> float:
        """One turn: answers in how many seconds the next is due."""
        if self._leases.unsettled:
            return self._interval
        try:
            recovered = await self._recover()
            overdue = await self._store.expire_overdue()
        except DatabaseUnavailable:
            self._leases.cut_off()
            return self._interval
        if overdue:
            log.info("job.expired", count=overdue)
            self._on_end()
        return 0 if recovered or overdue else self._interval

    async def _recover(self) -> int:
        async with self._store.transaction() as store:
            claims = await store.lock_expired_claims(self._lease)
            ended, later = self._judge(claims)
            await _write(store, ended, later)
        for claim in claims:
            log.warning(
                "job.recovered",
                notification_id=str(claim.notification_id),
                attempt=claim.number,
                lost_worker_id=str(claim.worker_id),
            )
        if ended:
            self._on_end()
        return len(claims)

    def _judge(self, claims: list[ExpiredClaim]) -> tuple[list[Record[Ended]], list[Record[Later]]]:
        ended: list[Record[Ended]] = []
        later: list[Record[Later]] = []
        for claim in claims:
            match judge_expired(claim, self._backoff):
                case Ended() as verdict:
                    ended.append(Record(claim, verdict, expired=True))
                case Later() as verdict:
                    later.append(Record(claim, verdict, expired=True))
                    self._on_retry(claim.channel, verdict)
        return ended, later


async def _write(store: Store, ended: list[Record[Ended]], later: list[Record[Later]]) -> None:
    if ended:
        await store.end_unsent(ended)
    if later:
        await store.retry_later(later)
