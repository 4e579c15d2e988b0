"""The scheduler's statements: one method each, named like its file in sql/."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from services.scheduler.accept import Candidate, Facts, Key, Known
from services.scheduler.listing import Filter, Scan, leading
from services.scheduler.notification import HistoryEntry, Notification, Request
from services.scheduler.statistics import Count, LaneStats, WebhookStats
from shared.database import Executor, Statements, columns

sql = Statements("services.scheduler")

MARK = "-- leading condition"
RARE_STATUSES = ("FAILED", "DEAD_LETTERED", "CANCELLED", "EXPIRED", "SUPPRESSED")


class Store:
    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def look_up_keys(self, keys: Sequence[Key]) -> Mapping[Key, Facts]:
        rows = await self._executor.fetch(sql["look_up_keys"], *columns(keys, 2))
        return {(row["tenant_id"], row["idempotency_key"]): _facts(row) for row in rows}

    async def insert_notifications(
        self, candidates: Sequence[Candidate], max_attempts: int
    ) -> Mapping[Key, Notification]:
        """Answers those that were written; the others' keys were taken in between."""
        arrays = columns([_row(candidate) for candidate in candidates], 15)
        rows = await self._executor.fetch(sql["insert_notifications"], *arrays, max_attempts)
        asked = {candidate.request.key: candidate.request for candidate in candidates}
        written = {(row["tenant_id"], row["idempotency_key"]): row for row in rows}
        return {key: _fresh(asked[key], row, max_attempts) for key, row in written.items()}

    async def read_notifications(self, ids: Sequence[tuple[str, UUID]]) -> Mapping[UUID, Notification]:
        rows = await self._executor.fetch(sql["read_notifications"], *columns(ids, 2))
        return {row["id"]: _notification(row) for row in rows}

    async def read_notification(self, tenant: str, notification_id: UUID) -> Notification | None:
        return (await self.read_notifications([(tenant, notification_id)])).get(notification_id)

    async def find_id(self, tenant: str, idempotency_key: str) -> UUID | None:
        rows = await self._executor.fetch(sql["find_id"], tenant, idempotency_key)
        return rows[0]["id"] if rows else None

    async def read_history(self, notification_id: UUID) -> Sequence[HistoryEntry]:
        return [HistoryEntry(**row) for row in await self._executor.fetch(sql["read_history"], notification_id)]

    async def cancel_notification(self, tenant: str, notification_id: UUID, actor: str, note: str) -> str | None:
        """The status that decided: it was PENDING exactly when this call cancelled it."""
        rows = await self._executor.fetch(sql["cancel_notification"], tenant, notification_id, actor, note)
        return rows[0]["status"] if rows else None

    async def list_notifications(self, tenant: str, filter_: Filter, scan: Scan, limit: int) -> Sequence[Notification]:
        statement = sql["list_notifications"].replace(MARK, _condition(filter_, {"address": "$7", "reference": "$8"}))
        rows = await self._executor.fetch(
            statement,
            tenant,
            scan.before,
            scan.after,
            limit,
            filter_.status,
            filter_.channel,
            filter_.address,
            filter_.reference,
            filter_.created_since,
            filter_.created_before,
        )
        return [_notification(row) for row in rows]

    async def find_scan_end(self, tenant: str, filter_: Filter, scan: Scan) -> UUID | None:
        statement = sql["find_scan_end"].replace(MARK, _condition(filter_, {"address": "$4", "reference": "$4"}))
        lead = leading(filter_)
        value = [asked for asked in (lead.reference, lead.address) if asked is not None]
        rows = await self._executor.fetch(statement, tenant, scan.before, scan.after, *value)
        return rows[0]["id"] if rows else None

    async def read_lane_stats(self, tenant: str) -> Sequence[LaneStats]:
        rows = await self._executor.fetch(sql["read_lane_stats"], tenant)
        return [
            LaneStats(
                row["channel"], _count(row, "due"), _count(row, "scheduled"), _count(row, "processing"), row["lag"]
            )
            for row in rows
        ]

    async def read_webhook_stats(self, tenant: str) -> WebhookStats:
        row = (await self._executor.fetch(sql["read_webhook_stats"], tenant))[0]
        return WebhookStats(_count(row, "unassigned"), _count(row, "pending"), _count(row, "given_up"))


def _condition(filter_: Filter, parameters: Mapping[str, str]) -> str:
    """The condition that the leading index answers, with its parameter's number where it has one.

    A subquery hides the value from the planner: for one that it knows to be frequent, as a campaign's reference, it
    would walk the primary key, and past all that is newer.
    """
    lead = leading(filter_)
    if lead.reference is not None:
        return f"AND n.reference = (SELECT {parameters['reference']})"
    if lead.address is not None:
        return f"AND n.address = (SELECT {parameters['address']})"
    if lead.status in RARE_STATUSES:
        return f"AND n.status = '{lead.status}'"  # a literal, or the partial index is lost
    return ""


def _facts(row: asyncpg.Record) -> Facts:
    known = Known(row["id"], row["fingerprint"]) if row["id"] else None
    return Facts(known, row["now"], row["horizon"], row["past_grace"])


def _row(candidate: Candidate) -> tuple[object, ...]:
    request = candidate.request
    return (
        request.tenant,
        request.idempotency_key,
        candidate.fingerprint,
        request.channel,
        request.address,
        request.priority,
        *_either(request.due),
        *_either(request.expiry),
        request.at_most_once,
        request.category,
        request.reference,
        json.dumps(request.labels),
        json.dumps(request.content),
    )


def _either(moment: datetime | timedelta | None) -> tuple[datetime | None, timedelta | None]:
    if isinstance(moment, timedelta):
        return None, moment
    return moment, None


def _fresh(request: Request, row: asyncpg.Record, max_attempts: int) -> Notification:
    return Notification(
        id=row["id"],
        idempotency_key=request.idempotency_key,
        channel=request.channel,
        address=request.address,
        priority=request.priority,
        status="PENDING",
        due_at=row["due_at"],
        next_attempt_at=row["next_attempt_at"],
        expire_at=row["expire_at"],
        max_attempts=max_attempts,
        at_most_once=request.at_most_once,
        category=request.category,
        reference=request.reference,
        labels=request.labels,
        created_at=row["created_at"],
    )


def _notification(row: asyncpg.Record) -> Notification:
    fields: dict[str, Any] = dict(row)
    return Notification(**fields | {"labels": json.loads(fields["labels"])})


def _count(row: asyncpg.Record, name: str) -> Count:
    return Count(row[name], row[f"{name}_bounded"])
