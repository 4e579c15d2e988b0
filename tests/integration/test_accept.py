"""Accepting: what was answered is stored, once per key, due when it was asked for, and wakes who is to deliver it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2

from notifyqueue.v1 import notification_pb2, scheduler_pb2, scheduler_pb2_grpc
from services.scheduler.accept import Accept
from services.scheduler.accept_store import AcceptStore
from services.scheduler.judging import Accepted, candidate
from services.scheduler.notification import Request
from services.worker.store import Store as WorkerStore
from shared.database import Database
from shared.listener import lane_topic
from tests.conftest import login
from tests.integration.conftest import StartScheduler
from tests.notifications import Notifications
from tests.recipients import PSEUDONYMS
from tests.spans import told as told_spans
from tests.templates import NoTemplates
from tests.waiting import eventually

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
SECRET = "s3cret"

Scheduler = scheduler_pb2_grpc.SchedulerStub


def schedule(**fields: Any) -> scheduler_pb2.ScheduleNotificationRequest:
    least: dict[str, Any] = {"idempotency_key": "order-1", "address": "someone@example.com"}
    least["email"] = {"subject": "Hello", "text": "How are you?"}
    return scheduler_pb2.ScheduleNotificationRequest(**least | fields)


def asked(tenant: str, key: str = "order-1", **fields: Any) -> Request:
    least: dict[str, Any] = {"channel": "EMAIL", "address": "someone@example.com", "content": {"text": "Hello"}}
    least |= {"priority": 2, "due": None, "expiry": None, "at_most_once": False, "category": "", "reference": None}
    return Request(**least | {"tenant": tenant, "idempotency_key": key, "labels": {}} | fields)


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[AcceptStore]:
    async with Database(login(database_url, "scheduler"), name="test", size=1) as database:
        yield AcceptStore(database)


async def test_nothing_is_answered_before_it_is_committed(scheduler: Scheduler, notifications: Notifications) -> None:
    async def insert_waits() -> bool:
        return bool(await notifications.connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))

    somebody = notifications.connection.transaction()
    await somebody.start()
    await notifications.insert("order-1")
    call = asyncio.ensure_future(scheduler.ScheduleNotification(schedule()))
    await eventually(insert_waits)
    assert not call.done()
    await somebody.rollback()
    answer = await call
    assert await notifications.status(UUID(answer.notification.notification_id)) == "PENDING"


async def test_the_span_that_asked_is_stored_with_what_was_accepted(
    start_scheduler: StartScheduler, database_url: str, notifications: Notifications
) -> None:
    """With the words that its caller passes on, which go nowhere else."""
    caller = f"00-{'1' * 32}-{'2' * 16}-01"
    with told_spans() as found:
        stub = Scheduler(await start_scheduler(database_url))
        answer = await stub.ScheduleNotification(
            schedule(), metadata=(("traceparent", caller), ("tracestate", "shop=theirs"))
        )
    (send,) = [span for span in found.spans if span.form.name == "send EMAIL"]
    row = await notifications.get(UUID(answer.notification.notification_id))
    assert row["trace_context"] == f"00-{'1' * 32}-{send.span_id.hex()}-01 shop=theirs"


async def test_the_same_request_again_answers_the_stored_notification(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    first = await scheduler.ScheduleNotification(schedule(labels={"a": "1", "b": "2"}))
    again = await scheduler.ScheduleNotification(schedule(labels={"b": "2", "a": "1"}, address="someone@EXAMPLE.com"))
    assert (first.replayed, again.replayed) == (False, True)
    assert again.notification == first.notification
    assert await notifications.statuses() == {"PENDING": 1}


async def test_a_replay_answers_what_has_become_of_it(scheduler: Scheduler) -> None:
    first = await scheduler.ScheduleNotification(schedule())
    id_ = first.notification.notification_id
    await scheduler.CancelNotification(scheduler_pb2.CancelNotificationRequest(notification_id=id_))
    again = await scheduler.ScheduleNotification(schedule())
    assert (again.replayed, again.notification.notification_id) == (True, id_)
    assert again.notification.status == notification_pb2.Notification.STATUS_CANCELLED


async def test_a_replay_is_still_one_when_its_time_would_be_refused(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    an_hour_ago = datetime.now(UTC) - HOUR
    request = schedule(due_time=an_hour_ago, expire_time=an_hour_ago + 2 * HOUR)
    first = await scheduler.ScheduleNotification(request)
    # As good as a day later: what was due then lies further back than a new request may.
    await notifications.connection.execute("UPDATE notifyqueue.tenants SET past_grace = '1 minute'")
    again = await scheduler.ScheduleNotification(request)
    assert (again.replayed, again.notification) == (True, first.notification)


@pytest.mark.parametrize(
    "change",
    [
        {"address": "other@example.com"},
        {"email": {"subject": "Hello", "text": "How are you ?"}},
        {"priority": notification_pb2.PRIORITY_HIGH},
        {"delay": timedelta()},
        {"ttl": DAY},
        {"reference": "order"},
        {"labels": {"a": "1"}},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_another_request_under_the_key_is_refused_with_the_id_of_the_first(
    scheduler: Scheduler, notifications: Notifications, change: dict[str, Any]
) -> None:
    first = await scheduler.ScheduleNotification(schedule())
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await scheduler.ScheduleNotification(schedule(**change))
    assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS
    info = error_info(refused.value)
    assert info.reason == "IDEMPOTENCY_KEY_REUSED"
    assert info.metadata == {"notification_id": first.notification.notification_id}
    assert await notifications.statuses() == {"PENDING": 1}


def error_info(error: grpc.aio.AioRpcError) -> error_details_pb2.ErrorInfo:
    trailers: dict[str, Any] = dict(error.trailing_metadata())
    info = error_details_pb2.ErrorInfo()
    assert any(
        detail.Unpack(info) for detail in status_pb2.Status.FromString(trailers["grpc-status-details-bin"]).details
    )
    return info


async def test_a_key_is_the_tenants_own(scheduler: Scheduler, store: AcceptStore, notifications: Notifications) -> None:
    await notifications.connection.execute("INSERT INTO notifyqueue.tenants (id) VALUES ('other')")
    accept = Accept(store, NoTemplates(), pseudonyms=PSEUDONYMS, max_attempts=5, on_due=lambda _: None, soon=HOUR)
    (theirs,) = await accept.flush([candidate(asked("other"))])
    ours = await scheduler.ScheduleNotification(schedule())
    (again,) = await accept.flush([candidate(asked("other"))])
    assert isinstance(theirs, Accepted)
    assert again == Accepted(theirs.notification, replayed=True)
    assert not ours.replayed
    assert ours.notification.notification_id != str(theirs.notification.id)


async def test_the_answer_is_what_a_later_look_finds(scheduler: Scheduler) -> None:
    everything = schedule(
        email={"subject": "s", "html": "h", "sender": "Shop <shop@example.com>", "headers": {"X-A": "b"}},
        due_time=datetime.now(UTC) + DAY,
        ttl=timedelta(hours=36, microseconds=1),
        priority=notification_pb2.PRIORITY_LOW,
        at_most_once=True,
        category="news",
        reference="spring",
        labels={"a": "\N{PILE OF POO}"},
    )
    answered = (await scheduler.ScheduleNotification(everything)).notification
    key = scheduler_pb2.GetNotificationRequest(notification_id=answered.notification_id)
    assert (await scheduler.GetNotification(key)).notification == answered
    assert answered.due_time == everything.due_time
    assert answered.expire_time.ToDatetime() == everything.due_time.ToDatetime() + timedelta(hours=36, microseconds=1)


async def test_what_is_not_said_has_its_default(scheduler: Scheduler) -> None:
    answered = (await scheduler.ScheduleNotification(schedule())).notification
    assert answered.priority == notification_pb2.PRIORITY_NORMAL
    assert answered.due_time == answered.create_time == answered.next_attempt_time
    assert not answered.HasField("expire_time")
    assert (answered.attempt_count, answered.max_attempts, answered.revision) == (0, 5, 1)


async def test_content_stands_in_a_table_of_its_own(scheduler: Scheduler, notifications: Notifications) -> None:
    content = {"subject": "Grüße \N{PILE OF POO}", "text": "a\tb\r\n", "headers": {"X-A": '"\\'}}
    answer = await scheduler.ScheduleNotification(schedule(email=content))
    stored = await notifications.connection.fetchval(
        "SELECT content FROM notifyqueue.notification_contents WHERE notification_id = $1",
        UUID(answer.notification.notification_id),
    )
    assert json.loads(stored) == content


async def test_content_is_in_no_answer_and_no_other_table(scheduler: Scheduler, notifications: Notifications) -> None:
    parts = ("subject", "text", "html")
    content = dict.fromkeys(parts, SECRET) | {"sender": f"{SECRET}@example.com", "headers": {"X-A": SECRET}}
    first = await scheduler.ScheduleNotification(schedule(email=content))
    id_ = first.notification.notification_id
    answers = [
        first,
        await scheduler.ScheduleNotification(schedule(email=content)),
        await scheduler.GetNotification(
            scheduler_pb2.GetNotificationRequest(notification_id=id_, include_timeline=True)
        ),
        await scheduler.ListNotifications(scheduler_pb2.ListNotificationsRequest()),
        await scheduler.CancelNotification(scheduler_pb2.CancelNotificationRequest(notification_id=id_)),
    ]
    assert not [answer for answer in answers if SECRET.encode() in answer.SerializeToString()]
    for table in ("notifications", "notification_history", "webhook_events"):
        rows = await notifications.connection.fetch(f"SELECT t::text FROM notifyqueue.{table} AS t")
        assert not [row for (row,) in rows if SECRET in row]


async def test_what_was_due_in_the_past_does_not_overtake_what_waits(
    scheduler: Scheduler, notifications: Notifications, database_url: str
) -> None:
    waits = await scheduler.ScheduleNotification(schedule(idempotency_key="waits"))
    late = await scheduler.ScheduleNotification(schedule(idempotency_key="late", due_time=datetime.now(UTC) - HOUR))
    assert late.notification.next_attempt_time == late.notification.create_time
    async with Database(login(database_url, "worker"), name="test", size=1) as database:
        claimed = await claim_one(WorkerStore(database))
    assert str(claimed) == waits.notification.notification_id


async def claim_one(store: WorkerStore) -> UUID:
    asked: dict[str, Any] = {"classes": [3, 2, 1], "due_for": timedelta(), "lease": HOUR, "take_suspect": False}
    (claim,) = await store.claim_due("EMAIL", limit=1, token=uuid4(), worker_id=uuid4(), **asked)
    return claim.notification_id


async def test_a_delay_counts_by_the_databases_clock(scheduler: Scheduler) -> None:
    delay = timedelta(days=1, seconds=90, microseconds=7)
    answered = (await scheduler.ScheduleNotification(schedule(delay=delay))).notification
    assert answered.due_time.ToDatetime() == answered.create_time.ToDatetime() + delay


async def test_a_day_of_a_delay_has_24_hours_in_any_time_zone(
    start_scheduler: StartScheduler, notifications: Notifications, database_url: str
) -> None:
    # Where clocks are put forward and back, within the year.
    name = await notifications.connection.fetchval("SELECT current_database()")
    await notifications.connection.execute(f"ALTER DATABASE {name} SET timezone = 'Europe/Berlin'")
    scheduler = scheduler_pb2_grpc.SchedulerStub(await start_scheduler(database_url))
    for days in (90, 182, 270):
        request = schedule(idempotency_key=f"{days}", delay=days * DAY, ttl=days * DAY)
        answered = (await scheduler.ScheduleNotification(request)).notification
        due = answered.due_time.ToDatetime()
        assert due - answered.create_time.ToDatetime() == days * DAY
        assert answered.expire_time.ToDatetime() - due == days * DAY


async def test_what_expires_on_its_way_is_left_out_and_fails_nobody_else(
    store: AcceptStore, notifications: Notifications
) -> None:
    expired = candidate(asked("default", "expired", expiry=datetime.now(UTC) - timedelta(seconds=1)))
    other = candidate(asked("default", "other"))
    written = await store.insert_notifications([expired, other], 5)
    assert list(written) == [("default", "other")]
    contents = "SELECT count(*) FROM notifyqueue.notification_contents"
    assert await notifications.connection.fetchval(contents) == 1


def said(**fields: Any) -> scheduler_pb2.ScheduleNotificationRequest:
    return scheduler_pb2.ScheduleNotificationRequest(**{"idempotency_key": "order-1"} | fields)


SPELLINGS = ("07700 900123", "+44 7700 900123", "+44 (0)7700 900123", "+44(0)7700900123", "00447700900123")


async def test_a_number_is_stored_and_told_as_one_however_it_is_written(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    await notifications.connection.execute("UPDATE notifyqueue.tenants SET region = 'GB'")
    for spelling in SPELLINGS:
        request = said(idempotency_key=spelling, address=spelling, sms={"text": "Hello"})
        answered = (await scheduler.ScheduleNotification(request)).notification
        assert (answered.address, answered.channel) == ("+447700900123", notification_pb2.CHANNEL_SMS)
    rows = await notifications.connection.fetch("SELECT DISTINCT address FROM notifyqueue.notifications")
    assert [row["address"] for row in rows] == ["+447700900123"]


async def test_a_replay_of_a_national_number_is_one_whatever_has_become_of_the_region(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    request = said(address="07700 900123", sms={"text": "Hello"})
    await notifications.connection.execute("UPDATE notifyqueue.tenants SET region = 'GB'")
    first = await scheduler.ScheduleNotification(request)
    for region in ("DE", None):
        await notifications.connection.execute("UPDATE notifyqueue.tenants SET region = $1", region)
        again = await scheduler.ScheduleNotification(request)
        assert (again.replayed, again.notification) == (True, first.notification)


@pytest.mark.parametrize("region", ["gb", "GBR", "", "G1"])
async def test_a_region_is_two_capital_letters(notifications: Notifications, region: str) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await notifications.connection.execute("UPDATE notifyqueue.tenants SET region = $1", region)


@pytest.mark.parametrize(
    "fields",
    [
        {"address": "+447700900123", "sms": {"text": "Hello \N{PILE OF POO}"}},
        {"address": "token", "push": {"title": "Hello", "body": "How are you?", "data": {"order": "1"}}},
    ],
    ids=["sms", "push"],
)
async def test_every_channel_has_its_expiry_its_attempts_and_its_content(
    scheduler: Scheduler, notifications: Notifications, fields: dict[str, Any]
) -> None:
    request = said(at_most_once=True, delay=HOUR, ttl=HOUR, **fields)
    answered = (await scheduler.ScheduleNotification(request)).notification
    assert answered.at_most_once
    assert answered.expire_time.ToDatetime() == answered.create_time.ToDatetime() + 2 * HOUR
    stored = await notifications.connection.fetchval("SELECT content FROM notifyqueue.notification_contents")
    assert json.loads(stored) == next(content for name, content in fields.items() if name != "address")


class Listening:
    """Hears the wake-ups of the email lane on a connection of its own."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._connection = connection
        self._heard: asyncio.Queue[str] = asyncio.Queue()

    async def begin(self) -> None:
        await self._connection.add_listener(lane_topic("EMAIL"), lambda *heard: self._heard.put_nowait(str(heard[3])))

    async def count(self) -> int:
        """How many were sent so far: they arrive in order, so whatever comes before our own."""
        await self._connection.execute("SELECT pg_notify($1, 'last')", lane_topic("EMAIL"))
        count = 0
        async with asyncio.timeout(20):
            while await self._heard.get() != "last":
                count += 1
        return count


@pytest.fixture
async def listening(notifications: Notifications) -> Listening:
    listening = Listening(notifications.connection)
    await listening.begin()
    return listening


@pytest.mark.parametrize(
    ("fields", "wake_ups"),
    [
        ({}, 1),
        ({"delay": timedelta(seconds=5)}, 1),
        ({"delay": timedelta(seconds=6)}, 0),
        ({"delay": DAY}, 0),
    ],
    ids=["now", "by the next look", "after the next look", "tomorrow"],
)
async def test_a_wake_up_is_sent_once_for_what_is_due_before_workers_look_by_themselves(
    start_scheduler: StartScheduler,
    stack: AsyncExitStack,
    listening: Listening,
    database_url: str,
    fields: dict[str, Any],
    wake_ups: int,
) -> None:
    scheduler = scheduler_pb2_grpc.SchedulerStub(await start_scheduler(database_url, poll_interval=5.0))
    await scheduler.ScheduleNotification(schedule(**fields))
    await stack.aclose()  # what it began to send has been sent
    assert await listening.count() == wake_ups


async def test_a_replay_wakes_nobody(
    start_scheduler: StartScheduler, stack: AsyncExitStack, listening: Listening, store: AcceptStore, database_url: str
) -> None:
    scheduler = scheduler_pb2_grpc.SchedulerStub(await start_scheduler(database_url))
    accept = Accept(store, NoTemplates(), pseudonyms=PSEUDONYMS, max_attempts=5, on_due=lambda _: None, soon=HOUR)
    content = {"subject": "Hello", "text": "How are you?"}
    await accept.flush([candidate(asked("default", content=content))])
    assert (await scheduler.ScheduleNotification(schedule())).replayed
    await stack.aclose()
    assert await listening.count() == 0
