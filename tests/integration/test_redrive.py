"""What died can be sent back by an operator: with a fresh budget, at once, and never where nothing is left to send."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import grpc
import grpc.aio
import pytest
from opentelemetry.trace import SpanKind

from notifyqueue.v1 import notification_pb2, scheduler_pb2, scheduler_pb2_grpc
from services.worker.providers import Answer, Outcome
from tests.integration.conftest import StartScheduler, StartWorker
from tests.integration.test_get_list_cancel import NOT_FOUND, STATUSES, refused
from tests.notifications import Notifications
from tests.providers import ScriptedProvider
from tests.spans import told
from tests.waiting import eventually

Scheduler = scheduler_pb2_grpc.SchedulerStub
Notification = notification_pb2.Notification
Entry = notification_pb2.TimelineEntry

DAY = timedelta(days=1)
DEAD: Mapping[str, Any] = {
    "status": "DEAD_LETTERED",
    **STATUSES["DEAD_LETTERED"],
    "attempt_count": 6,
    "max_attempts": 6,
    "reconciliation_granted": True,
    "expiries": 2,
    "started_at": datetime(2026, 1, 1, tzinfo=UTC),
    "provider_code": "421",
}
FAILED: Mapping[str, Any] = {"status": "FAILED", **STATUSES["FAILED"], "attempt_count": 1, "provider_code": "550"}
on_every_server = pytest.mark.parametrize("database_url", ["postgres", "postgres_15"], indirect=True)


async def redrive(scheduler: Scheduler, **fields: Any) -> Notification:
    key = {} if fields.keys() & {"notification_id", "idempotency_key"} else {"idempotency_key": "order-1"}
    request = scheduler_pb2.RedriveNotificationRequest(**key | fields)
    return (await scheduler.RedriveNotification(request)).notification


async def timeline(scheduler: Scheduler, id_: UUID) -> list[Entry]:
    request = scheduler_pb2.GetNotificationRequest(notification_id=str(id_), include_timeline=True)
    return list((await scheduler.GetNotification(request)).notification.timeline)


@on_every_server
@pytest.mark.parametrize("name", ["notification_id", "idempotency_key"])
async def test_what_was_dead_is_due_at_once_with_all_its_attempts(
    scheduler: Scheduler, notifications: Notifications, name: str
) -> None:
    id_ = await notifications.insert("order-1", due_in=-DAY, **DEAD)
    before = await notifications.get(id_)
    key = {"notification_id": str(id_), "idempotency_key": "order-1"}[name]
    answered = await redrive(scheduler, **{name: key}, reason="the provider is back")
    assert (answered.status, answered.revision, answered.redrive_count) == (Notification.STATUS_PENDING, 2, 1)
    assert (answered.failure_reason, answered.HasField("finish_time")) == (0, False)
    row = await notifications.get(id_)
    changed = {name: row[name] for name in row.keys() if row[name] != before[name]}  # noqa: SIM118
    now: datetime = await notifications.connection.fetchval("SELECT clock_timestamp()")
    assert now - timedelta(minutes=1) < changed.pop("next_attempt_at") == changed.pop("last_redriven_at") <= now
    assert changed == {
        "status": "PENDING",
        "attempt_count": 0,
        "max_attempts": 5,
        "reconciliation_granted": False,
        "expiries": 0,
        "started_at": None,
        "failure_reason": None,
        "finished_at": None,
        "redrive_count": 1,
        "revision": 2,
    }
    assert await notifications.events(id_) == []


async def test_it_may_have_as_many_attempts_as_this_installation_gives(
    start_scheduler: StartScheduler, notifications: Notifications, database_url: str
) -> None:
    await notifications.insert("order-1", **DEAD)
    scheduler = scheduler_pb2_grpc.SchedulerStub(await start_scheduler(database_url, max_attempts=9))
    assert (await redrive(scheduler)).max_attempts == 9


async def test_the_timeline_tells_who_did_it_and_why(scheduler: Scheduler, notifications: Notifications) -> None:
    id_ = await notifications.insert("order-1", **FAILED)
    await redrive(scheduler, reason="the provider is back")
    accepted, redriven = await timeline(scheduler, id_)
    assert (accepted.kind, redriven.kind) == (Entry.KIND_ACCEPTED, Entry.KIND_REDRIVEN)
    assert (redriven.actor, redriven.note) == ("anonymous", "the provider is back")


async def test_redriving_again_what_waits_since_a_redrive_changes_nothing(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    id_ = await notifications.insert("order-1", **DEAD)
    first = await redrive(scheduler, reason="once")
    assert [await redrive(scheduler, reason="twice") for _ in range(3)] == [first] * 3
    assert [entry["note"] for entry in await notifications.history(id_)] == ["once"]


ALIVE = [status for status in STATUSES if status not in ("FAILED", "DEAD_LETTERED")]
ONCE: Mapping[str, Any] = {"redrive_count": 1, "last_redriven_at": datetime(2026, 1, 1, tzinfo=UTC)}


@pytest.mark.parametrize(("status", "once"), [(ALIVE[0], {}), *((status, ONCE) for status in ALIVE[1:])])
async def test_what_is_not_dead_cannot_be_redriven(
    scheduler: Scheduler, notifications: Notifications, status: str, once: Mapping[str, Any]
) -> None:
    id_ = await notifications.insert("order-1", status=status, attempt_count=1, **STATUSES[status], **once)
    before = await notifications.get(id_)
    told = (grpc.StatusCode.FAILED_PRECONDITION, "STATUS_CONFLICT", {"notification_id": str(id_), "status": status})
    assert await refused(redrive(scheduler)) == told
    assert await notifications.get(id_) == before
    assert not await notifications.history(id_)


def no_longer_sendable(id_: UUID, cause: str) -> tuple[grpc.StatusCode, str, dict[str, str]]:
    metadata = {"notification_id": str(id_), "cause": cause}
    return grpc.StatusCode.FAILED_PRECONDITION, "NO_LONGER_SENDABLE", metadata


async def test_what_has_expired_is_refused_and_stays_as_it_is(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    id_ = await notifications.insert("order-1", due_in=-DAY, expire_at=datetime.now(UTC) - DAY / 2, **DEAD)
    before = await notifications.get(id_)
    assert await refused(redrive(scheduler)) == no_longer_sendable(id_, "EXPIRED")
    assert await notifications.get(id_) == before
    assert not await notifications.history(id_)


async def test_what_does_not_expire_yet_is_redriven_and_expires_when_it_did(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    expire_at = datetime.now(UTC) + DAY
    id_ = await notifications.insert("order-1", expire_at=expire_at, **DEAD)
    await redrive(scheduler)
    assert (await notifications.get(id_))["expire_at"] == expire_at


async def test_what_has_nothing_left_to_send_is_refused_and_stays_as_it_is(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    id_ = await notifications.insert("order-1", **FAILED)
    await notifications.connection.execute("DELETE FROM notifyqueue.notification_contents")
    before = await notifications.get(id_)
    assert await refused(redrive(scheduler)) == no_longer_sendable(id_, "CONTENT_ERASED")
    assert await notifications.get(id_) == before
    assert not await notifications.history(id_)


@on_every_server
async def test_a_content_that_is_erased_while_a_redrive_waits_is_missed_at_once(
    scheduler: Scheduler, notifications: Notifications, database_url: str
) -> None:
    async def waits() -> bool:
        return bool(await notifications.connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))

    id_ = await notifications.insert("order-1", **DEAD)
    connection = await asyncpg.connect(database_url)
    try:
        async with connection.transaction():  # as sql/erase_contents.sql holds it
            await connection.execute("SELECT FROM notifyqueue.notifications WHERE id = $1 FOR UPDATE", id_)
            call = asyncio.create_task(refused(redrive(scheduler)))
            await eventually(waits)
            await connection.execute("DELETE FROM notifyqueue.notification_contents")
    finally:
        await connection.close()
    assert await call == no_longer_sendable(id_, "CONTENT_ERASED")
    assert await notifications.status(id_) == "DEAD_LETTERED"


@pytest.mark.parametrize(
    ("columns", "maybe"),
    [
        ({**FAILED, "failure_reason": "OUTCOME_UNKNOWN", "at_most_once": True}, True),
        ({**DEAD, "maybe_delivered": True}, True),
        (DEAD, False),
        (FAILED, False),
    ],
    ids=["outcome unknown", "maybe delivered", "dead", "failed"],
)
async def test_that_it_may_have_been_delivered_is_decided_by_the_operator_and_not_forgotten(
    scheduler: Scheduler, notifications: Notifications, columns: Mapping[str, Any], maybe: bool
) -> None:
    id_ = await notifications.insert("order-1", **columns)
    await redrive(scheduler)
    row = await notifications.get(id_)
    assert (row["status"], row["maybe_delivered"]) == ("PENDING", maybe)


async def test_what_is_unknown_or_another_tenants_is_not_found(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    await notifications.connection.execute("INSERT INTO notifyqueue.tenants (id) VALUES ('other')")
    theirs = await notifications.insert("theirs", tenant_id="other", **DEAD)
    before = await notifications.get(theirs)
    for key in ({"notification_id": str(theirs)}, {"idempotency_key": "theirs"}, {"notification_id": str(uuid4())}):
        assert await refused(redrive(scheduler, **key)) == NOT_FOUND
    assert await notifications.get(theirs) == before


async def test_a_redriven_one_that_dies_again_has_a_second_event_and_one_that_is_sent_another(
    scheduler: Scheduler, notifications: Notifications, start_worker: StartWorker, database_url: str
) -> None:
    provider = ScriptedProvider()
    refusal = Outcome(Answer.PERMANENT_MESSAGE, code="550")
    provider.script("someone@example.com", refusal, refusal)
    id_ = await notifications.insert("order-1")
    # It looks by itself only once in an hour: what is redriven is sent because it is woken.
    await start_worker(database_url, provider, poll_interval=3600.0)

    async def ended() -> bool:
        return await notifications.status(id_) not in ("PENDING", "PROCESSING")

    for number in range(3):
        await eventually(ended)
        assert len(await notifications.events(id_)) == number + 1
        if number < 2:
            assert (await redrive(scheduler)).redrive_count == number + 1
    events = await notifications.connection.fetch(
        "SELECT status, redrive_count, attempt_count FROM notifyqueue.webhook_events ORDER BY id"
    )
    assert [tuple(event) for event in events] == [("FAILED", 0, 1), ("FAILED", 1, 1), ("SENT", 2, 1)]
    assert provider.requests == {id_: 3}  # always the same delivery key
    kinds = [entry.kind for entry in await timeline(scheduler, id_)]
    again = [Entry.KIND_ATTEMPT_FAILED, Entry.KIND_REDRIVEN]
    assert kinds == [Entry.KIND_ACCEPTED, *again, *again, Entry.KIND_SENT]


async def test_what_is_cancelled_after_a_redrive_hangs_on_that_call_or_where_nobody_traced_it_on_the_first(
    start_scheduler: StartScheduler, notifications: Notifications, database_url: str
) -> None:
    asked, died = (f"00-{digit * 32}-{digit * 16}-01" for digit in "12")
    dead = {**DEAD, "trace_context": asked, "last_trace_context": died}
    traced, untraced = [await notifications.insert(key, **dead) for key in ("traced", "untraced")]
    with told() as found:
        scheduler = Scheduler(await start_scheduler(database_url))
        await redrive(scheduler, notification_id=str(traced))
    await redrive(scheduler, notification_id=str(untraced))
    for id_ in (traced, untraced):
        await scheduler.CancelNotification(scheduler_pb2.CancelNotificationRequest(notification_id=str(id_)))
    events = await notifications.connection.fetch(
        "SELECT notification_id, trace_context FROM notifyqueue.webhook_events"
    )
    (call,) = [span for span in found.spans if span.form.kind is SpanKind.SERVER]
    assert {event["notification_id"]: event["trace_context"] for event in events} == {
        traced: call.text,
        untraced: asked,
    }


async def test_the_last_error_is_kept_until_the_next_attempt(
    scheduler: Scheduler, notifications: Notifications, start_worker: StartWorker, database_url: str
) -> None:
    id_ = await notifications.insert("order-1", **DEAD)
    assert (await redrive(scheduler)).provider_code == "421"
    provider = ScriptedProvider()
    provider.script("someone@example.com", Outcome(Answer.PERMANENT_MESSAGE, code="554"))
    await start_worker(database_url, provider)

    async def failed() -> bool:
        return await notifications.status(id_) == "FAILED"

    await eventually(failed)
    assert (await notifications.get(id_))["provider_code"] == "554"
