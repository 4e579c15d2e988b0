"""The dispatcher's statements."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import asyncpg

from services.dispatcher.delivery import Delivery, Result
from services.dispatcher.endpoints import Draft, Endpoint
from shared.database import Executor, Statements, columns

sql = Statements("services.dispatcher")

GROUP = 500  # events, or deliveries of a deleted endpoint, at once


@dataclass(frozen=True, slots=True)
class Configured:
    """The endpoint that a setting named, as it is stored."""

    id: UUID
    url: str
    sealed_secret: bytes
    enabled: bool


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a claim took, and what it found at the end of its attempts."""

    deliveries: Sequence[Delivery]
    given_up: Sequence[tuple[UUID, UUID]]


class Store:
    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def fan_out_events(self) -> tuple[int, int]:
        """How many events, into how many deliveries."""
        row = (await self._executor.fetch(sql["fan_out_events"], GROUP))[0]
        return row["events"], row["deliveries"]

    async def take_endpoints(self, cap: int, limit: int) -> Sequence[UUID]:
        """Held until the transaction ends."""
        return [row["id"] for row in await self._executor.fetch(sql["take_endpoints"], cap, limit)]

    async def claim_deliveries(
        self,
        endpoints: Sequence[UUID],
        *,
        cap: int,
        limit: int,
        token: UUID,
        lease: timedelta,
        max_attempts: int,
        tick: float,
    ) -> Claimed:
        """In the transaction of `take_endpoints`. `tick` is when this process began to ask."""
        rows = await self._executor.fetch(sql["claim_deliveries"], endpoints, cap, limit, token, lease, max_attempts)
        return Claimed(
            deliveries=[_delivery(row, token, tick) for row in rows if not row["given_up"]],
            given_up=[(row["id"], row["endpoint_id"]) for row in rows if row["given_up"]],
        )

    async def release_claim(self, token: UUID) -> int:
        """How many deliveries were held under it."""
        return len(await self._executor.fetch(sql["release_claim"], token))

    async def record_results(self, results: Sequence[Result]) -> Sequence[bool]:
        """Which of them were written, in order; the others' claims are lost."""
        rows = [_row(result) for result in sorted(results, key=lambda result: result.delivery.id)]
        written = await self._executor.fetch(sql["record_results"], *columns(rows, 10))
        ids = {row["id"] for row in written}
        return [result.delivery.id in ids for result in results]

    async def read_next_due(self, cap: int, horizon: timedelta) -> float | None:
        """In how many seconds there is something to claim; None: not within the horizon."""
        seconds: float | None = (await self._executor.fetch(sql["read_next_due"], cap, horizon))[0]["seconds"]
        return seconds

    async def give_up_deleted(self) -> int:
        """How many deleted endpoints it looked at."""
        return len(await self._executor.fetch(sql["give_up_deleted"], GROUP))

    async def new_endpoint_id(self) -> UUID:
        found: UUID = (await self._executor.fetch(sql["new_endpoint_id"]))[0]["id"]
        return found

    async def insert_endpoint(
        self, endpoint_id: UUID, tenant: str, draft: Draft, sealed: bytes, *, configured: bool, most: int | None
    ) -> Endpoint | None:
        """None: the tenant has `most` of them, or its configured one already."""
        rows = await self._executor.fetch(
            sql["insert_endpoint"],
            endpoint_id,
            tenant,
            draft.url,
            draft.event_types,
            draft.description,
            sealed,
            configured,
            most,
        )
        return _endpoint(rows[0]) if rows else None

    async def list_endpoints(self, tenant: str, before: UUID, limit: int) -> Sequence[Endpoint]:
        rows = await self._executor.fetch(sql["list_endpoints"], tenant, before, limit)
        return [_endpoint(row) for row in rows]

    async def delete_endpoint(self, tenant: str, endpoint_id: UUID) -> bool:
        """Whether there is such an endpoint."""
        return bool(await self._executor.fetch(sql["delete_endpoint"], tenant, endpoint_id))

    async def find_configured_endpoint(self, tenant: str) -> Configured | None:
        rows = await self._executor.fetch(sql["find_configured_endpoint"], tenant)
        return Configured(**rows[0]) if rows else None

    async def update_configured_endpoint(self, endpoint_id: UUID, url: str, sealed: bytes) -> None:
        await self._executor.fetch(sql["update_configured_endpoint"], endpoint_id, url, sealed)


def _delivery(row: asyncpg.Record, token: UUID, tick: float) -> Delivery:
    return Delivery(
        id=row["id"],
        event_id=row["event_id"],
        endpoint_id=row["endpoint_id"],
        tenant=row["tenant_id"],
        attempt=row["attempt_count"],
        url=row["url"],
        sealed_secret=row["sealed_secret"],
        body=row["body"],
        claim_token=token,
        claimed_at=row["claimed_at"],
        claimed_tick=tick,
        trace_context=row["trace_context"],
        recent=row["recent"],
    )


def _row(result: Result) -> tuple[object, ...]:
    return (
        result.delivery.id,
        result.delivery.endpoint_id,
        result.delivery.claim_token,
        result.started_at,
        result.duration,
        result.answer.status,
        result.answer.error,
        result.verdict.give_up_reason,
        result.verdict.delay,
        result.verdict.pause,
    )


def _endpoint(row: asyncpg.Record) -> Endpoint:
    return Endpoint(**row)
