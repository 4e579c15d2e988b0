"""Sweeps, on every worker and led by none: claims whose worker is gone, notifications whose time is over."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Self
from uuid import UUID

import structlog

from services.worker import measured
from services.worker.claim import ExpiredClaim
from services.worker.leases import Leases
from services.worker.outcome import Ended, Later, Verdict, judge_expired
from services.worker.store import Record, Store, WorkerStore
from shared.backoff import Backoff
from shared.batching import BadItem
from shared.errors import DatabaseUnavailable
from shared.loop import Loop
from shared.telemetry import metrics

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
            log.info("job.expired", count=len(overdue))
            for channel, reason in overdue:
                measured.unsent(channel, reason)
            self._on_end()
        return 0 if recovered or overdue else self._interval

    async def _recover(self) -> int:
        """How many claims were decided about."""
        try:
            return await self._decide(None)
        except BadItem:  # one that cannot be written must not stand in the way of the others
            async with self._store.transaction() as store:
                claims = await store.lock_expired_claims(self._lease)
            return sum([await self._decide_alone(claim.notification_id) for claim in claims])

    async def _decide_alone(self, notification_id: UUID) -> int:
        try:
            return await self._decide([notification_id])
        except BadItem as error:
            log.error("job.unrecoverable", notification_id=str(notification_id), exc_info=error)
            return 0

    async def _decide(self, only: Sequence[UUID] | None) -> int:
        async with self._store.transaction() as store:
            claims = await store.lock_expired_claims(self._lease, only)
            verdicts = [(claim, judge_expired(claim, self._backoff)) for claim in claims]
            await _write(store, verdicts)
        for claim, verdict in verdicts:
            self._tell(claim, verdict)
        if claims:
            log.warning("jobs.recovered", count=len(claims))
        return len(claims)

    def _tell(self, claim: ExpiredClaim, verdict: Verdict) -> None:
        facts = {"notification_id": str(claim.notification_id), "attempt": claim.number}
        log.warning("job.recovered", lost_worker_id=str(claim.worker_id), **facts)
        match verdict:
            case Ended(reason=None):
                log.warning("job.expired", **facts)
            case Ended(reason="WORKER_LOST"):
                log.warning("job.dead_letter", reason="WORKER_LOST", **facts)
            case Ended(reason=reason):
                log.warning("job.fail", reason=reason, **facts)
        metrics.RECOVERED.add(1, claim.channel)
        measured.recorded(claim.channel, verdict)
        if isinstance(verdict, Later):
            self._on_retry(claim.channel, verdict)
        else:
            self._on_end()


async def _write(store: Store, verdicts: Sequence[tuple[ExpiredClaim, Verdict]]) -> None:
    ended = [Record(claim, verdict, expired=True) for claim, verdict in verdicts if isinstance(verdict, Ended)]
    later = [Record(claim, verdict, expired=True) for claim, verdict in verdicts if isinstance(verdict, Later)]
    if ended:
        await store.end_unsent(ended)
    if later:
        await store.retry_later(later)
