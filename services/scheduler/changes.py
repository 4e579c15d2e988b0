"""What a caller may still change: each change is one conditional update, and the answer is what it did."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

import structlog

from services.scheduler.notification import Notification
from services.scheduler.times import due_field, due_time, judge_due
from shared.errors import RequestInvalid, ResourceNotFound, StatusConflict, Violation

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Schedule:
    """Where a notification stands, and what a new due time of it is judged by."""

    status: str
    expire_at: datetime | None
    now: datetime
    horizon: timedelta
    past_grace: timedelta


@dataclass(frozen=True, slots=True)
class Wish:
    """What shall change; None: it stays as it was."""

    due: datetime | timedelta | None
    priority: int | None


@dataclass(frozen=True, slots=True)
class By:
    """Who changes it, and why."""

    actor: str
    note: str


class Store(Protocol):
    async def find_id(self, tenant: str, idempotency_key: str) -> UUID | None: ...
    async def read_notification(self, tenant: str, notification_id: UUID) -> Notification | None: ...
    async def cancel_notification(self, tenant: str, notification_id: UUID, actor: str, note: str) -> str | None: ...
    async def read_schedule(self, tenant: str, notification_id: UUID) -> Schedule | None: ...
    async def reschedule_notification(
        self,
        tenant: str,
        notification_id: UUID,
        due_at: datetime | None,
        priority: int | None,
        *,
        actor: str,
        note: str,
    ) -> Notification | None: ...


async def resolve(store: Store, tenant: str, key: UUID | str) -> UUID:
    """The id behind an id or an idempotency key. Raises ResourceNotFound."""
    found = key if isinstance(key, UUID) else await store.find_id(tenant, key)
    if found is None:
        raise ResourceNotFound("notification")
    return found


async def get(store: Store, tenant: str, key: UUID | str) -> Notification:
    """Raises ResourceNotFound."""
    found = await store.read_notification(tenant, await resolve(store, tenant, key))
    if found is None:
        raise ResourceNotFound("notification")
    return found


async def cancel(store: Store, tenant: str, key: UUID | str, by: By) -> Notification:
    """The cancelled notification; cancelling it again changes nothing. Raises ResourceNotFound, StatusConflict."""
    notification_id = await resolve(store, tenant, key)
    status = await store.cancel_notification(tenant, notification_id, by.actor, by.note)
    if status not in (None, "PENDING", "CANCELLED"):
        raise StatusConflict(notification_id, status)
    if status == "PENDING":
        log.info("job.cancelled", notification_id=str(notification_id), actor=by.actor)
    return await get(store, tenant, notification_id)


class Rescheduling:
    """Gives what nobody has taken another due time or priority."""

    def __init__(self, store: Store, *, on_due: Callable[[str], None], soon: timedelta) -> None:
        """`on_due` is told the channel of what is now due within `soon`."""
        self._store = store
        self._on_due = on_due
        self._soon = soon

    async def reschedule(self, tenant: str, key: UUID | str, wish: Wish, by: By) -> Notification:
        """The notification as this call left it. Raises ResourceNotFound, StatusConflict, RequestInvalid."""
        notification_id = await resolve(self._store, tenant, key)
        schedule = await self._store.read_schedule(tenant, notification_id)
        if schedule is None:
            raise ResourceNotFound("notification")
        if schedule.status != "PENDING":
            raise StatusConflict(notification_id, schedule.status)
        if violations := _judge(wish.due, schedule):
            raise RequestInvalid(violations)
        # The instant that was judged: counted once more, a delay could end after it expires.
        due_at = None if wish.due is None else due_time(wish.due, schedule.now)
        moved = await self._store.reschedule_notification(
            tenant, notification_id, due_at, wish.priority, actor=by.actor, note=by.note
        )
        if moved is None:
            raise ResourceNotFound("notification")
        if moved.status != "PENDING":
            raise StatusConflict(notification_id, moved.status)
        if moved.next_attempt_at - schedule.now <= self._soon:
            self._on_due(moved.channel)
        return moved


def _judge(due: datetime | timedelta | None, schedule: Schedule) -> list[Violation]:
    if due is None:
        return []
    found = judge_due(due, schedule)
    start = max(due_time(due, schedule.now), schedule.now)
    if not found and schedule.expire_at is not None and start >= schedule.expire_at:
        found.append(Violation(due_field(due), "must be before it expires"))
    return found
