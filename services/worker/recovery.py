"""Sweeps, on every worker and led by none: claims whose worker is gone, notifications whose time is over."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple, Self
from uuid import UUID

import structlog

from services.worker import measured, spans
from services.worker.claim import ExpiredClaim
from services.worker.leases import Leases
from services.worker.outcome import Ended, Later, Verdict, judge_expired
from services.worker.store import Record, Store, WorkerStore
from shared.backoff import Backoff
from shared.batching import BadItem
from shared.errors import DatabaseUnavailable
from shared.loop import Loop
from shared.telemetry import metrics
from shared.telemetry.spans import Span

log = structlog.get_logger()

MAX_INTERVAL = 5.0


class Decision(NamedTuple):
    claim: ExpiredClaim
    verdict: Verdict
    span: Span
    """It ends when the decision stands. Of one that does not, nobody is told."""


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
            return sum([await self._decide_alone(claim) for claim in claims])

    async def _decide_alone(self, claim: ExpiredClaim) -> int:
        try:
            return await self._decide([claim.notification_id])
        except BadItem as error:
            with spans.recover(claim) as span:
                span.fail("unrecoverable")
                log.error("job.unrecoverable", exc_info=error, **_facts(claim))
            return 0

    async def _decide(self, only: Sequence[UUID] | None) -> int:
        async with self._store.transaction() as store:
            claims = await store.lock_expired_claims(self._lease, only)
            decisions = [Decision(claim, judge_expired(claim, self._backoff), spans.recover(claim)) for claim in claims]
            await _write(store, decisions)
        for claim, verdict, span in decisions:
            with span:
                spans.judged(span, verdict)
                self._tell(claim, verdict)
        if claims:
            log.warning("jobs.recovered", count=len(claims))
        return len(claims)

    def _tell(self, claim: ExpiredClaim, verdict: Verdict) -> None:
        facts = _facts(claim)
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


def _facts(claim: ExpiredClaim) -> Mapping[str, object]:
    facts: dict[str, object] = {"notification_id": str(claim.notification_id), "attempt": claim.number}
    return facts | ({"address_hash": claim.pseudonym} if claim.pseudonym else {})


async def _write(store: Store, decisions: Sequence[Decision]) -> None:
    ended: list[Record[Ended]] = []
    later: list[Record[Later]] = []
    for claim, verdict, span in decisions:
        match verdict:
            case Ended():
                ended.append(Record(claim, verdict, expired=True, trace=span.reference))
            case Later():
                later.append(Record(claim, verdict, expired=True))
    if ended:
        await store.end_unsent(ended)
    if later:
        await store.retry_later(later)
