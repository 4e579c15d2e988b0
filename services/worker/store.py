"""The worker's statements: one method each, named like its file in sql/."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar
from uuid import UUID

import asyncpg

from services.worker.claim import Claim, ExpiredClaim, Held
from services.worker.outcome import Ended, Later, Sent, Verdict
from services.worker.shared_lane import LaneFacts, Probe
from shared.clock import tick
from shared.database import Database, Executor, Locked, Statements, columns
from shared.telemetry import traces
from shared.telemetry.spans import Reference

sql = Statements("services.worker")

# A limit in the text keeps the plan, and powers of two keep the texts few.
CLAIM_LIMITS = tuple(2**power for power in range(10))
CLAIM = {limit: sql["claim_due"].replace("LIMIT 64", f"LIMIT {limit}") for limit in CLAIM_LIMITS}
OVERDUE = 500

Kind = TypeVar("Kind", bound=Verdict, covariant=True)


@dataclass(frozen=True, slots=True)
class Record(Generic[Kind]):
    """What is to be written about a claim."""

    held: Held
    verdict: Kind
    expired: bool = False
    """Its lease passed, and it is not its worker that writes this."""
    trace: Reference | None = None
    """The span of the attempt."""


@dataclass(frozen=True, slots=True)
class LaneLoad:
    """What a worker says of one of its lanes."""

    channel: str
    concurrency: int
    in_flight: int
    sent: int
    unsent: int


class Store:
    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def claim_due(
        self,
        channel: str,
        *,
        limit: int,
        classes: Sequence[int],
        due_for: timedelta,
        token: UUID,
        worker_id: UUID,
        lease: timedelta,
        take_suspect: bool,
    ) -> list[Claim]:
        """`limit` is one of CLAIM_LIMITS."""
        asked_at = tick()
        rows = await self._executor.fetch(
            CLAIM[limit], channel, classes, due_for, token, worker_id, lease, take_suspect
        )
        return [_claim(row, channel, token, asked_at) for row in rows]

    async def claim_probe(self, channel: str, *, token: UUID, worker_id: UUID, lease: timedelta) -> list[Claim]:
        """At most one, and no suspect."""
        asked_at = tick()
        rows = await self._executor.fetch(sql["claim_probe"], channel, token, worker_id, lease)
        return [_claim(row, channel, token, asked_at) for row in rows]

    async def read_next_due(self, channel: str, *, suspects: bool) -> float | None:
        """Seconds until something is due; negative where it is."""
        rows = await self._executor.fetch(sql["read_next_due"], channel, suspects)
        seconds: float | None = rows[0]["seconds"]
        return seconds

    async def start_attempts(self, claims: Sequence[Held], lease: timedelta) -> set[UUID]:
        """Those that were ours, and that nobody else holds locked."""
        return await self._fenced("start_attempts", [_fence(held) for held in claims], 2, lease)

    async def renew_leases(self, claims: Sequence[Held], lease: timedelta) -> set[UUID]:
        """Those that are not ours any more."""
        return await self._fenced("renew_leases", [_fence(held) for held in claims], 2, lease)

    async def find_held(self, claims: Sequence[Held]) -> set[UUID]:
        """Those that are still ours."""
        return await self._fenced("find_held", [_fence(held) for held in claims], 2)

    async def mark_sent(self, records: Sequence[Record[Sent]]) -> set[UUID]:
        """Those that were ours, and that nobody else holds locked."""
        rows = [
            (*_fence(record.held), record.verdict.provider_message_id, traces.written(record.trace))
            for record in records
        ]
        return await self._fenced("mark_sent", rows, 4)

    async def end_unsent(self, records: Sequence[Record[Ended]]) -> set[UUID]:
        """Those that were ours, and that nobody else holds locked."""
        rows = [
            (
                *_fence(record.held),
                record.verdict.reason,
                record.verdict.code,
                record.verdict.kind,
                record.expired,
                record.verdict.suppresses,
                traces.written(record.trace),
            )
            for record in records
        ]
        return await self._fenced("end_unsent", rows, 8)

    async def retry_later(self, records: Sequence[Record[Later]]) -> set[UUID]:
        """Those that were ours, and that nobody else holds locked."""
        rows = [
            (
                *_fence(record.held),
                record.verdict.delay,
                record.verdict.code,
                record.verdict.kind,
                record.verdict.refunded,
                record.verdict.reconciled,
                record.expired,
            )
            for record in records
        ]
        return await self._fenced("retry_later", rows, 8)

    async def find_recorded(self, records: Sequence[Record[Verdict]]) -> set[UUID]:
        """Those whose record stands already."""
        rows = [
            (*_fence(record.held), record.held.number, getattr(record.verdict, "kind", "SENT")) for record in records
        ]
        return await self._fenced("find_recorded", rows, 4)

    async def release_token(self, token: UUID, worker_id: UUID) -> int:
        """How many were given back."""
        return len(await self._executor.fetch(sql["release_token"], token, worker_id))

    async def lock_expired_claims(self, lease: timedelta, only: Sequence[UUID] | None = None) -> list[ExpiredClaim]:
        """Within a transaction, which decides about them. `only` these, if they have expired."""
        return [_expired(row) for row in await self._executor.fetch(sql["lock_expired_claims"], lease, only)]

    async def expire_overdue(self) -> list[tuple[str, str | None]]:
        """Channel and failure reason of each that was ended."""
        rows = await self._executor.fetch(sql["expire_overdue"], OVERDUE)
        return [(row["channel"], row["failure_reason"]) for row in rows]

    async def beat(self, worker_id: UUID, phase: str, lanes: Sequence[LaneLoad]) -> list[LaneFacts]:
        """How every lane is, for all workers."""
        rows = [(lane.channel, lane.concurrency, lane.in_flight, lane.sent, lane.unsent) for lane in lanes]
        return [
            LaneFacts(**row) for row in await self._executor.fetch(sql["beat"], worker_id, phase, *columns(rows, 5))
        ]

    async def forget_worker(self, worker_id: UUID) -> None:
        await self._executor.fetch(sql["forget_worker"], worker_id)

    async def open_breaker(
        self, channel: str, known: int, cause: str, first_probe_in: timedelta, worker_id: UUID
    ) -> bool:
        """Whether it was this call that opened it. `known` is the last opening that the caller knows of."""
        return bool(await self._executor.fetch(sql["open_breaker"], channel, known, cause, first_probe_in, worker_id))

    async def close_breaker(self, channel: str, opening: int, worker_id: UUID) -> bool:
        """Whether it was this call that closed it."""
        return bool(await self._executor.fetch(sql["close_breaker"], channel, opening, worker_id))

    async def take_probe(self, channel: str, probe: Probe, within: timedelta) -> bool:
        """Whether this worker has it."""
        return bool(await self._executor.fetch(sql["take_probe"], channel, probe.opening, probe.token, within))

    async def delay_probe(self, channel: str, probe: Probe, longest: timedelta) -> None:
        await self._executor.fetch(sql["delay_probe"], channel, probe.opening, probe.token, longest)

    async def return_probe(self, channel: str, probe: Probe) -> None:
        await self._executor.fetch(sql["return_probe"], channel, probe.opening, probe.token)

    async def hold_lane(self, channel: str, span: timedelta) -> None:
        await self._executor.fetch(sql["hold_lane"], channel, span)

    async def _fenced(self, name: str, rows: Sequence[tuple[Any, ...]], width: int, *more: object) -> set[UUID]:
        # Ascending ids in every statement: two groups that meet take their rows in one order.
        args = [*columns(sorted(rows, key=lambda row: row[0]), width), *more]
        try:
            found = await self._executor.fetch(sql[name], *args)
        except Locked:  # by one row's lock the whole group would wait; without that row, the others are written
            found = await self._executor.fetch(sql[name].replace("FOR UPDATE\n", "FOR UPDATE SKIP LOCKED\n"), *args)
        return {row["id"] for row in found}


class WorkerStore(Store):
    """The statements on their own, and in transactions."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._database = database

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Store]:
        async with self._database.transaction() as connection:
            yield Store(connection)


def _fence(held: Held) -> tuple[UUID, UUID]:
    return held.notification_id, held.claim_token


def _claim(row: asyncpg.Record, channel: str, token: UUID, asked_at: float) -> Claim:
    return Claim(
        **_held(row, channel, token),
        address=row["address"] or "",  # erased: with its content, so it is not sent
        content=json.loads(row["content"]) if row["content"] else None,
        expiries=row["expiries"],
        suppressed_by=row["suppressed_by"],
        asked_at=asked_at,
        tenant_id=row["tenant_id"],
        subscriber=row["subscriber"],
        limited=row["limited"],
        late_by=row["late_by"],
        due_at_once=row["due_at_once"],
        granted=row["granted"],
        trace_context=row["trace_context"],
        last_trace_context=row["last_trace_context"],
        recent=row["recent"],
    )


def _expired(row: asyncpg.Record) -> ExpiredClaim:
    return ExpiredClaim(
        **_held(row, row["channel"], row["claim_token"]),
        worker_id=row["worker_id"],
        started=row["started"],
        pseudonym=row["pseudonym"],
        trace_context=row["trace_context"],
        last_trace_context=row["last_trace_context"],
        recent=row["recent"],
    )


def _held(row: asyncpg.Record, channel: str, token: UUID) -> dict[str, Any]:
    return {
        "notification_id": row["id"],
        "claim_token": token,
        "channel": channel,
        "number": row["attempt_count"],
        "max_attempts": row["max_attempts"],
        "at_most_once": row["at_most_once"],
        "reconciled": row["reconciliation_granted"],
        "maybe_delivered": row["maybe_delivered"],
        "time_left": row["time_left"],
    }
