"""What nobody has taken can be given another time or priority, and the answer is what happened."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import grpc
import grpc.aio
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from notifyqueue.v1 import notification_pb2, scheduler_pb2, scheduler_pb2_grpc
from tests.notifications import Notifications

Scheduler = scheduler_pb2_grpc.SchedulerStub
Notification = notification_pb2.Notification
Entry = notification_pb2.TimelineEntry

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
HIGH = notification_pb2.PRIORITY_HIGH

CLAIMED = {"claim_token": uuid4(), "worker_id": uuid4(), "lease_expires_at": datetime(2100, 1, 1, tzinfo=UTC)}
ENDED = {"finished_at": datetime(2026, 1, 1, tzinfo=UTC)}
TAKEN: Mapping[str, Mapping[str, Any]] = {
    "PROCESSING": CLAIMED,
    "SENT": ENDED,
    "DEAD_LETTERED": ENDED | {"failure_reason": "ATTEMPTS_EXHAUSTED"},
    "CANCELLED": ENDED,
}


async def reschedule(scheduler: Scheduler, **fields: Any) -> Notification:
    key = {} if fields.keys() & {"notification_id", "idempotency_key"} else {"idempotency_key": "order-1"}
    request = scheduler_pb2.RescheduleNotificationRequest(**key | fields)
    return (await scheduler.RescheduleNotification(request)).notification


async def refused(call: Any) -> tuple[grpc.StatusCode, str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    trailers: dict[str, Any] = dict(error.value.trailing_metadata())
    return error.value.code(), trailers["error-reason"], str(error.value.details())


async def get(scheduler: Scheduler, id_: UUID) -> Notification:
    request = scheduler_pb2.GetNotificationRequest(notification_id=str(id_), include_timeline=True)
    return (await scheduler.GetNotification(request)).notification


def at(span: timedelta) -> Timestamp:
    time = Timestamp()
    time.FromDatetime(datetime.now(UTC) + span)
    return time


@pytest.mark.parametrize("name", ["notification_id", "idempotency_key"])
async def test_a_new_time_and_priority_are_answered_stored_and_told(
    scheduler: Scheduler, notifications: Notifications, name: str
) -> None:
    id_, due = await notifications.insert("order-1"), at(DAY)
    key = {"notification_id": str(id_), "idempotency_key": "order-1"}[name]
    moved = await reschedule(scheduler, **{name: key}, due_time=due, priority=HIGH, reason="not today")
    assert (moved.status, moved.revision, moved.priority) == (Notification.STATUS_PENDING, 2, HIGH)
    assert moved.due_time == moved.next_attempt_time == due
    found = await get(scheduler, id_)
    told = found.timeline[-1]
    assert [entry.kind for entry in found.timeline] == [Entry.KIND_ACCEPTED, Entry.KIND_RESCHEDULED]
    assert (told.note, told.actor) == ("not today", "anonymous")
    found.ClearField("timeline")
    assert found == moved
    assert await notifications.events(id_) == []


@pytest.mark.parametrize(
    "fields",
    [{"due_time": at(DAY)}, {"due_time": at(-HOUR)}, {"priority": HIGH}, {"due_time": at(DAY), "priority": HIGH}],
    ids=["later", "past", "priority", "both"],
)
async def test_the_same_call_again_answers_the_same_and_changes_nothing(
    scheduler: Scheduler, notifications: Notifications, fields: Mapping[str, Any]
) -> None:
    id_ = await notifications.insert("order-1", due_in=HOUR)
    first = await reschedule(scheduler, **fields)
    assert first.revision == 2
    assert [await reschedule(scheduler, **fields) for _ in range(3)] == [first] * 3
    assert len(await notifications.history(id_)) == 1


async def test_a_delay_counts_by_the_databases_clock_from_each_call(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    await notifications.insert("order-1")
    before: datetime = await notifications.connection.fetchval("SELECT clock_timestamp()")
    first = await reschedule(scheduler, delay=HOUR)
    again = await reschedule(scheduler, delay=HOUR)
    assert before + HOUR <= first.due_time.ToDatetime(UTC) < again.due_time.ToDatetime(UTC)


async def test_what_is_due_in_the_past_is_tried_now(scheduler: Scheduler, notifications: Notifications) -> None:
    id_, due = await notifications.insert("order-1", due_in=DAY), at(-HOUR)
    moved = await reschedule(scheduler, due_time=due)
    assert moved.due_time == due
    now: datetime = await notifications.connection.fetchval("SELECT clock_timestamp()")
    assert now - HOUR < (await notifications.get(id_))["next_attempt_at"] <= now


async def test_a_priority_alone_leaves_the_times_as_they_were(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    id_ = await notifications.insert("order-1", due_in=HOUR)
    before = await notifications.get(id_)
    await reschedule(scheduler, priority=HIGH)
    after = await notifications.get(id_)
    assert (after["due_at"], after["next_attempt_at"]) == (before["due_at"], before["next_attempt_at"])
    assert (after["priority"], after["revision"]) == (3, 2)


async def backing_off(notifications: Notifications, **columns: Any) -> UUID:
    """Due an hour ago, tried twice, and to be tried again in an hour."""
    id_ = await notifications.insert("order-1", due_in=-HOUR, attempt_count=2, provider_code="421", **columns)
    await notifications.connection.execute(
        "UPDATE notifyqueue.notifications SET next_attempt_at = now() + interval '1 hour'"
    )
    return id_


async def test_what_waits_for_a_retry_is_tried_at_its_new_time_with_the_attempts_that_are_left(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    await backing_off(notifications)
    moved = await reschedule(scheduler, due_time=at(2 * DAY))
    assert (moved.next_attempt_time, moved.attempt_count, moved.provider_code) == (moved.due_time, 2, "421")


async def test_what_waits_for_a_retry_can_be_tried_now_under_its_old_due_time(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    id_ = await backing_off(notifications)
    due = (await get(scheduler, id_)).due_time
    moved = await reschedule(scheduler, due_time=due)
    assert (moved.due_time, moved.revision) == (due, 2)
    assert moved.next_attempt_time.ToDatetime(UTC) < datetime.now(UTC) + timedelta(minutes=1)


async def test_a_priority_alone_does_not_shorten_a_backoff(scheduler: Scheduler, notifications: Notifications) -> None:
    id_ = await backing_off(notifications)
    before = await get(scheduler, id_)
    assert (await reschedule(scheduler, priority=HIGH)).next_attempt_time == before.next_attempt_time
    assert (await reschedule(scheduler, priority=HIGH)).revision == 2


@pytest.mark.parametrize("fields", [{"due_time": at(DAY)}, {"priority": HIGH}], ids=["due_time", "priority"])
async def test_what_waits_at_a_gate_stands_in_the_queue_again(
    scheduler: Scheduler, notifications: Notifications, fields: Mapping[str, Any]
) -> None:
    id_ = await notifications.insert("order-1", waiting=True)
    await reschedule(scheduler, **fields)
    assert (await notifications.get(id_))["waiting"] is False


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"due_time": at(-DAY - HOUR)}, "due_time"),
        ({"due_time": Timestamp()}, "due_time"),
        ({"due_time": at(366 * DAY)}, "due_time"),
        ({"due_time": at(3 * DAY)}, "due_time"),
        ({"delay": 3 * DAY}, "delay"),
    ],
    ids=["past", "1970", "beyond the horizon", "after it expires", "a delay until after it expires"],
)
async def test_a_time_that_makes_no_sense_is_refused_and_nothing_is_written(
    scheduler: Scheduler, notifications: Notifications, fields: Mapping[str, Any], name: str
) -> None:
    id_ = await notifications.insert("order-1", expire_at=datetime.now(UTC) + 2 * DAY)
    before = await notifications.get(id_)
    code, reason, details = await refused(reschedule(scheduler, **fields))
    assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_INVALID")
    assert details.startswith(f"{name}: ")
    assert await notifications.get(id_) == before
    assert not await notifications.history(id_)


async def test_the_bounds_are_the_tenants(scheduler: Scheduler, notifications: Notifications) -> None:
    await notifications.insert("order-1")
    await notifications.connection.execute("UPDATE notifyqueue.tenants SET horizon = '1 hour', past_grace = '1 minute'")
    for due in (at(2 * HOUR), at(-HOUR)):
        assert (await refused(reschedule(scheduler, due_time=due)))[1] == "REQUEST_INVALID"
    assert (await reschedule(scheduler, delay=HOUR)).revision == 2


@pytest.mark.parametrize("status", TAKEN)
async def test_what_is_not_pending_cannot_be_rescheduled(
    scheduler: Scheduler, notifications: Notifications, status: str
) -> None:
    id_ = await notifications.insert("order-1", status=status, attempt_count=1, **TAKEN[status])
    before = await notifications.get(id_)
    code, reason, details = await refused(reschedule(scheduler, due_time=at(DAY), priority=HIGH))
    assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "STATUS_CONFLICT")
    assert details == f"the notification is {status}"
    assert await notifications.get(id_) == before
    assert not await notifications.history(id_)


async def test_what_is_unknown_or_another_tenants_is_not_found(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    await notifications.connection.execute("INSERT INTO notifyqueue.tenants (id) VALUES ('other')")
    theirs = await notifications.insert("theirs", tenant_id="other")
    before = await notifications.get(theirs)
    for key in ({"notification_id": str(theirs)}, {"idempotency_key": "theirs"}, {"notification_id": str(uuid4())}):
        code, reason, _ = await refused(reschedule(scheduler, **key, priority=HIGH))
        assert (code, reason) == (grpc.StatusCode.NOT_FOUND, "RESOURCE_NOT_FOUND")
    assert await notifications.get(theirs) == before
