"""The scheduler's statements: one method each, named like its file in sql/."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any
from uuid import UUID

import asyncpg

from services.scheduler.bulk import Ended
from services.scheduler.changes import By, Schedule
from services.scheduler.destination import Person
from services.scheduler.judging import Candidate, Facts, Key, Known
from services.scheduler.lanes import Lane, LiveLane, LiveWorker, OpenBreaker, Pause
from services.scheduler.limits import Limit
from services.scheduler.listing import Filter, Scan, leading
from services.scheduler.notification import HistoryEntry, Notification, Request
from services.scheduler.redrives import Dead, Slice, Tried
from services.scheduler.statistics import SHOWN, Count, LaneStats, Totals, WebhookStats
from services.scheduler.templates import VersionRef
from shared.database import Executor, Locked, Statements, columns
from shared.telemetry import traces
from shared.telemetry.spans import current

sql = Statements("services.scheduler")

MARK = "-- leading condition"
FORM = "notifyqueue.suppressed_form"  # of an address: one for all its spellings
RARE_STATUSES = ("FAILED", "DEAD_LETTERED", "CANCELLED", "EXPIRED", "SUPPRESSED")


class Store:
    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def look_up_keys(self, requests: Sequence[Request]) -> Mapping[Key, Facts]:
        asked = [
            (
                *(*request.key, request.channel, request.address, request.category),
                *(*_template(request), request.subscriber, request.pseudonym),
            )
            for request in requests
        ]
        rows = await self._executor.fetch(sql["look_up_keys"], *columns(asked, 9))
        return {(row["tenant_id"], row["idempotency_key"]): _facts(row) for row in rows}

    async def insert_notifications(
        self, candidates: Sequence[Candidate], max_attempts: int
    ) -> Mapping[Key, Notification]:
        """Answers those that were written; the others' keys were taken in between."""
        arrays = columns([_row(candidate) for candidate in candidates], 20)
        with traces.group("insert_notifications", "INSERT", "notifications", (one.trace for one in candidates)):
            spans = [traces.written(candidate.trace) for candidate in candidates]
            rows = await self._executor.fetch(sql["insert_notifications"], *arrays, max_attempts, spans)
        asked = {candidate.request.key: candidate for candidate in candidates}
        written = {(row["tenant_id"], row["idempotency_key"]): row for row in rows}
        return {key: _fresh(asked[key], row, max_attempts) for key, row in written.items()}

    async def read_notifications(self, ids: Sequence[tuple[str, UUID]]) -> Mapping[UUID, Notification]:
        rows = await self._executor.fetch(sql["read_notifications"], *columns(ids, 2))
        return {row["id"]: _notification(row) for row in rows}

    async def read_changed(self, known: Sequence[tuple[UUID, int]]) -> Mapping[UUID, Notification | None]:
        """Those that no longer have the known revision; None: it is gone."""
        rows = await self._executor.fetch(sql["read_changed"], *columns(known, 2))
        return {row["known_id"]: _notification(row, without=("known_id",)) if row["id"] else None for row in rows}

    async def read_notification(self, tenant: str, notification_id: UUID) -> Notification | None:
        return (await self.read_notifications([(tenant, notification_id)])).get(notification_id)

    async def find_id(self, tenant: str, idempotency_key: str) -> UUID | None:
        rows = await self._executor.fetch(sql["find_id"], tenant, idempotency_key)
        return rows[0]["id"] if rows else None

    async def read_gauges(self) -> Sequence[tuple[str, tuple[str, ...], float]]:
        """Gauge, attributes and value of each."""
        rows = await self._executor.fetch(sql["read_gauges"], SHOWN)
        return [(row["gauge"], tuple(row["attributes"]), row["value"]) for row in rows]

    async def read_history(self, notification_id: UUID) -> Sequence[HistoryEntry]:
        return [HistoryEntry(**row) for row in await self._executor.fetch(sql["read_history"], notification_id)]

    async def cancel_notification(self, tenant: str, notification_id: UUID, actor: str, note: str) -> str | None:
        """The status that decided: it was PENDING exactly when this call cancelled it."""
        rows = await self._executor.fetch(sql["cancel_notification"], tenant, notification_id, actor, note)
        return rows[0]["status"] if rows else None

    async def cancel_notifications(self, tenant: str, ids: Sequence[UUID], actor: str, note: str) -> Ended:
        """Those end that were PENDING."""
        args = (tenant, sorted(ids), actor, note)
        try:
            rows = await self._executor.fetch(sql["cancel_notifications"], *args)
        except Locked:  # by one row's lock all would wait; without that row, the others are cancelled
            rows = await self._executor.fetch(_passing(sql["cancel_notifications"]), *args)
            return Ended(rows[0]["cancelled"], passed_over=rows[0]["cancelled"] < len(ids))
        return Ended(rows[0]["cancelled"])

    async def find_dead(self, tenant: str, filter_: Filter, scan: Scan) -> Slice:
        """What fits among the oldest that are in the filter's status, which is FAILED or DEAD_LETTERED."""
        rows = await self._executor.fetch(
            sql["find_dead"].replace("'DEAD_LETTERED'", f"'{filter_.status}'"),
            tenant,
            scan.before,
            scan.after,
            filter_.channel,
            filter_.address,
            filter_.reference,
            filter_.created_since,
            filter_.created_before,
            filter_.subscriber,
        )
        dead = list(map(Dead, rows[0]["ids"], rows[0]["revisions"]))
        return Slice(dead, rows[0]["passed_over"], rows[0]["scan_end"])

    async def redrive_notifications(
        self, tenant: str, turns: Mapping[Dead, timedelta], max_attempts: int, by: By, *, pass_locked: bool
    ) -> Mapping[UUID, Tried]:
        """What became of each that there is. `pass_locked`: of what somebody keeps locked, nothing is said."""
        asked = sorted(((dead.id, dead.revision, turn) for dead, turn in turns.items()), key=lambda row: row[0])
        args = (tenant, *columns(asked, 3), max_attempts, by.actor, by.note, traces.written(current()))
        try:
            rows = await self._executor.fetch(sql["redrive_notifications"], *args)
        except Locked:
            if not pass_locked:
                raise
            rows = await self._executor.fetch(_passing(sql["redrive_notifications"]), *args)
        return {row["id"]: Tried(row["channel"], row["status"], row["redrive_count"], row["obstacle"]) for row in rows}

    async def read_schedule(self, tenant: str, notification_id: UUID) -> Schedule | None:
        rows = await self._executor.fetch(sql["read_schedule"], tenant, notification_id)
        return Schedule(**rows[0]) if rows else None

    async def reschedule_notification(
        self,
        tenant: str,
        notification_id: UUID,
        due_at: datetime | None,
        priority: int | None,
        *,
        actor: str,
        note: str,
    ) -> Notification | None:
        """As it is after this call, which changed it exactly when it is PENDING."""
        args = (tenant, notification_id, due_at, priority, actor, note)
        rows = await self._executor.fetch(sql["reschedule_notification"], *args)
        return _notification(rows[0]) if rows else None

    async def list_notifications(
        self, tenant: str, filter_: Filter, scan: Scan, limit: int
    ) -> tuple[Sequence[Notification], UUID | None]:
        """The page; where it is short, also the id below which there may be more."""
        rows = await self._executor.fetch(
            _led(sql["list_notifications"], filter_, address="$6, $7", reference="$8", subscriber="$11"),
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
            filter_.subscriber,
        )
        found = [_notification(row, without=("scan_end",)) for row in rows if row["id"]]
        return found, rows[0]["scan_end"]

    async def find_pending(self, tenant: str, filter_: Filter, scan: Scan) -> tuple[Sequence[UUID], UUID | None]:
        """What fits among the newest; and the id below which there may be more. The filter's status says nothing."""
        rows = await self._executor.fetch(
            _led(sql["find_pending"], replace(filter_, status=None), address="$4, $5", reference="$6", subscriber="$9"),
            tenant,
            scan.before,
            scan.after,
            filter_.channel,
            filter_.address,
            filter_.reference,
            filter_.created_since,
            filter_.created_before,
            filter_.subscriber,
        )
        return rows[0]["ids"], rows[0]["scan_end"]

    async def read_region(self, tenant: str) -> str | None:
        rows = await self._executor.fetch(sql["read_region"], tenant)
        return rows[0]["region"] if rows else None

    async def read_lane_stats(self, tenant: str | None) -> Sequence[LaneStats]:
        """None: everybody's."""
        rows = await self._executor.fetch(sql["read_lane_stats"], tenant)
        return [
            LaneStats(
                row["channel"],
                _count(row, "due"),
                _count(row, "scheduled"),
                _count(row, "waiting"),
                _count(row, "processing"),
                row["lag"],
                row["stranded"],
            )
            for row in rows
        ]

    async def read_totals(self, tenant: str | None) -> Totals:
        """None: everybody's. What never happened is not among them."""
        rows = await self._executor.fetch(sql["read_totals"], tenant)
        return {(row["channel"], row["status"]): _count(row, "total") for row in rows}

    async def read_webhook_stats(self, tenant: str | None) -> WebhookStats:
        """None: everybody's."""
        row = (await self._executor.fetch(sql["read_webhook_stats"], tenant))[0]
        return WebhookStats(_count(row, "unassigned"), _count(row, "pending"), _count(row, "given_up"))

    async def pause_lane(self, channel: str, actor: str, reason: str) -> None:
        await self._executor.fetch(sql["pause_lane"], channel, actor, reason)

    async def resume_lane(self, channel: str, actor: str, reason: str) -> None:
        await self._executor.fetch(sql["resume_lane"], channel, actor, reason)

    async def read_lanes(self) -> Sequence[Lane]:
        return [_lane(row) for row in await self._executor.fetch(sql["read_lanes"])]

    async def read_workers(self) -> Sequence[LiveWorker]:
        return [_worker(row) for row in await self._executor.fetch(sql["read_workers"])]


def _passing(statement: str) -> str:
    return statement.replace("FOR UPDATE\n", "FOR UPDATE SKIP LOCKED\n")


def _led(statement: str, filter_: Filter, **parameters: str) -> str:
    """The statement with the condition that the leading index answers, by its parameter where it has one.

    A subquery hides the value from the planner: for one that it knows to be frequent, as a campaign's reference, it
    would walk the primary key, and past all that is newer.
    """
    lead, condition = leading(filter_), ""
    if lead.reference is not None:
        condition = f"AND n.reference = (SELECT {parameters['reference']})"
    elif lead.subscriber is not None:
        condition = f"AND n.subscriber = (SELECT {parameters['subscriber']})"
    elif lead.address is not None:
        condition = f"AND {FORM}(n.channel, n.address) = (SELECT {FORM}({parameters['address']}))"
    elif lead.status in RARE_STATUSES:
        condition = f"AND n.status = '{lead.status}'"  # a literal, or the partial index is lost
    return statement.replace(MARK, condition)


def _facts(row: asyncpg.Record) -> Facts:
    known = Known(row["id"], row["fingerprint"]) if row["id"] else None
    limit = Limit(Fraction(row["accept_rate"]), row["accept_burst"]) if row["accept_rate"] else None
    return Facts(
        known,
        row["now"],
        row["horizon"],
        row["past_grace"],
        row["region"],
        row["suppressed_by"],
        limit,
        row["empty_at"],
        VersionRef(row["template_id"], row["template_version"], row["template_channel"])
        if row["template_id"]
        else None,
        row["pending_quota"],
        row["pending"] or 0,
        row["counted_at"],
        Person(row["person_id"], row["person_address"], row["person_locale"]) if row["person_id"] else None,
    )


def _template(request: Request) -> tuple[str | None, int | None]:
    return (request.template.name, request.template.version) if request.template else (None, None)


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
        json.dumps(candidate.content),
        *_rendered_from(candidate),
        *(request.subscriber, request.person, request.pseudonym),
    )


def _rendered_from(candidate: Candidate) -> tuple[str | None, int | None]:
    template, rendered = candidate.request.template, candidate.rendered
    return (template.name, rendered.version) if template and rendered else (None, None)


def _either(moment: datetime | timedelta | None) -> tuple[datetime | None, timedelta | None]:
    if isinstance(moment, timedelta):
        return None, moment
    return moment, None


def _fresh(candidate: Candidate, row: asyncpg.Record, max_attempts: int) -> Notification:
    request = candidate.request
    template, template_version = _rendered_from(candidate)
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
        template=template,
        template_version=template_version,
        subscriber=request.subscriber,
        created_at=row["created_at"],
    )


def _notification(row: asyncpg.Record, *, without: Sequence[str] = ()) -> Notification:
    fields: dict[str, Any] = {name: value for name, value in row.items() if name not in without}
    return Notification(**fields | {"labels": json.loads(fields["labels"]), "address": fields["address"] or ""})


def _count(row: asyncpg.Record, name: str) -> Count:
    return Count(row[name], row[f"{name}_bounded"])


def _lane(row: asyncpg.Record) -> Lane:
    pause = Pause(row["paused_at"], row["paused_by"], row["pause_reason"]) if row["paused_at"] else None
    breaker = OpenBreaker(row["opened_at"], row["cause"], row["probe_at"]) if row["opened_at"] else None
    return Lane(row["channel"], pause, breaker, row["held_until"])


def _worker(row: asyncpg.Record) -> LiveWorker:
    lanes = zip(*(row[name] for name in ("channels", "concurrency", "in_flight", "sent", "unsent")), strict=True)
    return LiveWorker(
        row["id"], row["phase"], row["started_at"], row["heartbeat_at"], [LiveLane(*lane) for lane in lanes]
    )
