"""What a caller can ask about its notifications, and take back."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import grpc
import grpc.aio
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2, status_pb2

from notifyqueue.v1 import notification_pb2, scheduler_pb2, scheduler_pb2_grpc
from services.scheduler.listing import SCANNED, Filter, list_page
from services.scheduler.store import Store
from shared.database import Database, Executor
from shared.paging import Page
from tests.conftest import login
from tests.notifications import Notifications

Scheduler = scheduler_pb2_grpc.SchedulerStub
Notification = notification_pb2.Notification
Entry = notification_pb2.TimelineEntry

EMAIL = notification_pb2.CHANNEL_EMAIL
HOUR = timedelta(hours=1)

# What the database asks of a notification in each status.
CLAIMED = {"claim_token": uuid4(), "worker_id": uuid4(), "lease_expires_at": datetime(2100, 1, 1, tzinfo=UTC)}
ENDED = {"finished_at": datetime(2026, 1, 1, tzinfo=UTC)}
STATUSES: Mapping[str, Mapping[str, Any]] = {
    "PENDING": {},
    "PROCESSING": CLAIMED,
    "SENT": ENDED,
    "FAILED": ENDED | {"failure_reason": "MESSAGE_REJECTED"},
    "DEAD_LETTERED": ENDED | {"failure_reason": "ATTEMPTS_EXHAUSTED"},
    "CANCELLED": ENDED,
    "EXPIRED": ENDED,
    "SUPPRESSED": ENDED | {"failure_reason": "OPTED_OUT"},
}


def get(**fields: Any) -> scheduler_pb2.GetNotificationRequest:
    return scheduler_pb2.GetNotificationRequest(**fields)


def cancel(**fields: Any) -> scheduler_pb2.CancelNotificationRequest:
    return scheduler_pb2.CancelNotificationRequest(**fields)


def listed(*, page_size: int = 0, page_token: str = "", **fields: Any) -> scheduler_pb2.ListNotificationsRequest:
    filter_ = notification_pb2.NotificationFilter(**fields)
    return scheduler_pb2.ListNotificationsRequest(filter=filter_, page_size=page_size, page_token=page_token)


async def refused(call: Any) -> tuple[grpc.StatusCode, str, dict[str, str]]:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    trailers: dict[str, Any] = dict(error.value.trailing_metadata())
    info = error_details_pb2.ErrorInfo()
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    assert any(detail.Unpack(info) for detail in status.details)
    return error.value.code(), info.reason, dict(info.metadata)


NOT_FOUND = (grpc.StatusCode.NOT_FOUND, "RESOURCE_NOT_FOUND", {"resource": "notification"})


@pytest.fixture
async def theirs(notifications: Notifications) -> UUID:
    """A notification of another tenant, under the key "theirs"."""
    await notifications.connection.execute("INSERT INTO notifyqueue.tenants (id) VALUES ('other')")
    return await notifications.insert("theirs", tenant_id="other", reference="order")


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with Database(login(database_url, "scheduler"), name="test", size=1) as database:
        yield database


async def test_a_notification_has_two_names(scheduler: Scheduler, notifications: Notifications) -> None:
    id_ = await notifications.insert("order-1", reference="order")
    by_id = (await scheduler.GetNotification(get(notification_id=str(id_).upper()))).notification
    by_key = (await scheduler.GetNotification(get(idempotency_key="order-1"))).notification
    assert by_id == by_key
    assert (by_id.notification_id, by_id.idempotency_key, by_id.reference) == (str(id_), "order-1", "order")


@pytest.mark.parametrize("method", ["GetNotification", "CancelNotification"])
async def test_what_is_unknown_is_not_found(scheduler: Scheduler, method: str) -> None:
    make = {"GetNotification": get, "CancelNotification": cancel}[method]
    assert await refused(getattr(scheduler, method)(make(notification_id=str(uuid4())))) == NOT_FOUND
    assert await refused(getattr(scheduler, method)(make(idempotency_key="unknown"))) == NOT_FOUND


@pytest.mark.parametrize("method", ["GetNotification", "CancelNotification"])
async def test_what_is_another_tenants_is_not_found(
    scheduler: Scheduler, notifications: Notifications, theirs: UUID, method: str
) -> None:
    make = {"GetNotification": get, "CancelNotification": cancel}[method]
    assert await refused(getattr(scheduler, method)(make(notification_id=str(theirs)))) == NOT_FOUND
    assert await refused(getattr(scheduler, method)(make(idempotency_key="theirs"))) == NOT_FOUND
    assert await notifications.status(theirs) == "PENDING"


@pytest.mark.parametrize("status", STATUSES)
async def test_a_notification_is_answered_in_every_status(
    scheduler: Scheduler, notifications: Notifications, status: str
) -> None:
    id_ = await notifications.insert("order-1", status=status, attempt_count=1, **STATUSES[status])
    found = (await scheduler.GetNotification(get(notification_id=str(id_)))).notification
    reason = STATUSES[status].get("failure_reason", "UNSPECIFIED")
    assert found.status == Notification.Status.Value(f"STATUS_{status}")
    assert found.failure_reason == notification_pb2.FailureReason.Value(f"FAILURE_REASON_{reason}")
    assert found.HasField("next_attempt_time") == (status == "PENDING")
    assert found.HasField("finish_time") == ("finished_at" in STATUSES[status])


async def test_a_timeline_is_told_only_where_it_is_asked_for(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    id_ = await notifications.insert("order-1")
    found = (await scheduler.GetNotification(get(notification_id=str(id_)))).notification
    assert not found.timeline


async def test_a_timeline_begins_with_the_acceptance(scheduler: Scheduler, notifications: Notifications) -> None:
    id_ = await notifications.insert("order-1")
    found = (await scheduler.GetNotification(get(notification_id=str(id_), include_timeline=True))).notification
    (entry,) = found.timeline
    assert entry == Entry(kind=Entry.KIND_ACCEPTED, time=found.create_time)


@pytest.mark.parametrize("status", ["SENT", "FAILED", "DEAD_LETTERED", "EXPIRED", "SUPPRESSED"])
async def test_a_timeline_ends_with_how_it_ended(
    scheduler: Scheduler, notifications: Notifications, status: str
) -> None:
    facts: dict[str, Any] = {"attempt_count": 2, "provider_code": "550"}
    id_ = await notifications.insert("order-1", status=status, **facts, **STATUSES[status])
    found = (await scheduler.GetNotification(get(notification_id=str(id_), include_timeline=True))).notification
    accepted, ended = found.timeline
    assert accepted.kind == Entry.KIND_ACCEPTED
    assert ended == Entry(
        kind=Entry.Kind.Value(f"KIND_{status}"), time=found.finish_time, attempt=2, provider_code="550"
    )


async def test_a_timeline_tells_attempts_in_their_order(scheduler: Scheduler, notifications: Notifications) -> None:
    id_, worker = await notifications.insert("order-1", attempt_count=2), uuid4()
    for number, kind in enumerate(("ATTEMPT_FAILED", "ATTEMPT_UNKNOWN"), start=1):
        await notifications.connection.execute(
            "INSERT INTO notifyqueue.notification_history"
            " (notification_id, kind, attempt, claim_token, worker_id, provider_code, retry_delay)"
            " VALUES ($1, $2, $3, $4, $5, '421', '90 seconds')",
            *(id_, kind, number, uuid4(), worker),
        )
    found = (await scheduler.GetNotification(get(notification_id=str(id_), include_timeline=True))).notification
    assert [entry.kind for entry in found.timeline[1:]] == [Entry.KIND_ATTEMPT_FAILED, Entry.KIND_ATTEMPT_UNKNOWN]
    assert [entry.attempt for entry in found.timeline[1:]] == [1, 2]
    assert {entry.worker_id for entry in found.timeline[1:]} == {str(worker)}
    assert {entry.retry_delay.ToTimedelta() for entry in found.timeline[1:]} == {timedelta(seconds=90)}


@pytest.mark.parametrize("key", ["notification_id", "idempotency_key"])
async def test_a_cancelled_notification_says_so_and_why(
    scheduler: Scheduler, notifications: Notifications, key: str
) -> None:
    id_ = await notifications.insert("order-1")
    name = {"notification_id": str(id_), "idempotency_key": "order-1"}[key]
    answered = (await scheduler.CancelNotification(cancel(**{key: name}, reason="no longer wanted"))).notification
    assert (answered.status, answered.revision) == (Notification.STATUS_CANCELLED, 2)
    found = (await scheduler.GetNotification(get(notification_id=str(id_), include_timeline=True))).notification
    assert [entry.kind for entry in found.timeline] == [Entry.KIND_ACCEPTED, Entry.KIND_CANCELLED]
    assert found.timeline[1].note == "no longer wanted"
    assert answered == found_without_timeline(found)


def found_without_timeline(found: Notification) -> Notification:
    bare = Notification()
    bare.CopyFrom(found)
    bare.ClearField("timeline")
    return bare


async def test_cancelling_again_changes_nothing(scheduler: Scheduler, notifications: Notifications) -> None:
    id_ = await notifications.insert("order-1")
    first = await scheduler.CancelNotification(cancel(notification_id=str(id_), reason="first"))
    again = await scheduler.CancelNotification(cancel(notification_id=str(id_), reason="again"))
    assert again == first
    assert [entry["note"] for entry in await notifications.history(id_)] == ["first"]


async def test_cancellations_at_once_make_one_event(scheduler: Scheduler, notifications: Notifications) -> None:
    id_ = await notifications.insert("order-1")
    calls = [scheduler.CancelNotification(cancel(notification_id=str(id_), reason=str(n))) for n in range(20)]
    answers = await asyncio.gather(*calls)
    assert {answer.notification.revision for answer in answers} == {2}
    assert await notifications.events(id_) == ["CANCELLED"]
    assert len(await notifications.history(id_)) == 1


@pytest.mark.parametrize("status", [status for status in STATUSES if status not in ("PENDING", "CANCELLED")])
async def test_what_is_not_pending_cannot_be_cancelled(
    scheduler: Scheduler, notifications: Notifications, status: str
) -> None:
    id_ = await notifications.insert("order-1", status=status, attempt_count=1, **STATUSES[status])
    before = await notifications.get(id_)
    code, reason, metadata = await refused(scheduler.CancelNotification(cancel(notification_id=str(id_))))
    assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "STATUS_CONFLICT")
    assert metadata == {"notification_id": str(id_), "status": status}
    assert await notifications.get(id_) == before
    assert not await notifications.history(id_)


async def test_a_notification_that_waits_for_a_retry_can_be_cancelled(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    id_ = await notifications.insert("order-1", attempt_count=3, waiting=True)
    answer = await scheduler.CancelNotification(cancel(notification_id=str(id_)))
    assert answer.notification.status == Notification.STATUS_CANCELLED


async def keys(scheduler: Scheduler, request: scheduler_pb2.ListNotificationsRequest) -> list[str]:
    page = await scheduler.ListNotifications(request)
    return [found.idempotency_key for found in page.notifications]


async def all_pages(scheduler: Scheduler, request: scheduler_pb2.ListNotificationsRequest) -> list[list[str]]:
    pages = []
    for _ in range(100):
        page = await scheduler.ListNotifications(request)
        pages.append([found.idempotency_key for found in page.notifications])
        if not page.next_page_token:
            return pages
        request.page_token = page.next_page_token
    raise AssertionError("the list has no end")


@pytest.fixture
async def various(notifications: Notifications, theirs: UUID) -> None:
    """Some that differ in one thing or another, oldest first, of each of two tenants."""
    await notifications.connection.execute("UPDATE notifyqueue.tenants SET region = 'GB' WHERE id = 'default'")
    rows: Sequence[tuple[str, Mapping[str, Any]]] = [
        ("plain", {}),
        ("order", {"reference": "order"}),
        ("failed", {"status": "FAILED", "reference": "order", **STATUSES["FAILED"]}),
        ("cancelled", {"status": "CANCELLED", **STATUSES["CANCELLED"]}),
        ("sent", {"status": "SENT", "address": "ada@example.com", **STATUSES["SENT"]}),
        ("ada", {"address": "ada@example.com"}),
        ("ada failed", {"address": "ada@example.com", "status": "FAILED", **STATUSES["FAILED"]}),
        ("ada order", {"address": "ada@example.com", "reference": "order"}),
        ("sms", {"channel": "SMS", "address": "+447700900123"}),
        ("sms order", {"channel": "SMS", "reference": "order", "address": "+447700900124"}),
        ("push", {"channel": "PUSH", "address": "07700900123"}),
    ]
    for key, columns in rows:
        await notifications.insert(key, **columns)
        await notifications.insert(key, tenant_id="other", **columns)


@pytest.mark.usefixtures("various")
@pytest.mark.parametrize(
    ("filter_", "found"),
    [
        ({"status": "STATUS_FAILED"}, ["ada failed", "failed"]),
        ({"status": "STATUS_CANCELLED"}, ["cancelled"]),
        ({"status": "STATUS_SENT"}, ["sent"]),
        ({"status": "STATUS_EXPIRED"}, []),
        ({"channel": "CHANNEL_SMS"}, ["sms order", "sms"]),
        ({"channel": "CHANNEL_PUSH"}, ["push"]),
        ({"channel": "CHANNEL_SMS", "address": "+44 (0)7700 900123"}, ["sms"]),
        ({"channel": "CHANNEL_SMS", "address": "07700 900 124"}, ["sms order"]),
        ({"channel": "CHANNEL_SMS", "address": "07700900124", "reference": "order"}, ["sms order"]),
        ({"channel": "CHANNEL_SMS", "address": "+1 202 555 0100"}, []),
        ({"channel": "CHANNEL_PUSH", "address": "07700900123"}, ["push"]),
        ({"channel": "CHANNEL_PUSH", "address": "+447700900123"}, []),
        ({"reference": "order"}, ["sms order", "ada order", "failed", "order"]),
        ({"reference": "Order"}, []),
        ({"channel": EMAIL, "address": "ada@EXAMPLE.com"}, ["ada order", "ada failed", "ada", "sent"]),
        ({"channel": EMAIL, "address": "nobody@example.com"}, []),
        ({"status": "STATUS_FAILED", "channel": EMAIL, "address": "ada@example.com"}, ["ada failed"]),
        ({"status": "STATUS_FAILED", "reference": "order"}, ["failed"]),
        ({"status": "STATUS_PENDING", "reference": "order"}, ["sms order", "ada order", "order"]),
        ({"channel": EMAIL, "reference": "order"}, ["ada order", "failed", "order"]),
        ({"channel": EMAIL, "address": "ada@example.com", "reference": "order"}, ["ada order"]),
        (
            {"status": "STATUS_PENDING", "channel": EMAIL, "address": "ada@example.com", "reference": "order"},
            ["ada order"],
        ),
        (
            {"status": "STATUS_SENT", "channel": EMAIL, "address": "ada@example.com", "reference": "order"},
            [],
        ),
        ({"reference": "order", "created_before": Timestamp(seconds=1)}, []),
        ({"reference": "order", "created_since": Timestamp(seconds=1), "status": "STATUS_FAILED"}, ["failed"]),
    ],
)
async def test_a_list_has_what_matches_all_of_its_filter(
    scheduler: Scheduler, filter_: Mapping[str, Any], found: Sequence[str]
) -> None:
    assert await keys(scheduler, listed(**filter_)) == found


@pytest.mark.usefixtures("various")
async def test_a_list_without_a_filter_has_all_of_the_tenants_newest_first(scheduler: Scheduler) -> None:
    assert await keys(scheduler, listed()) == [
        "push",
        "sms order",
        "sms",
        "ada order",
        "ada failed",
        "ada",
        "sent",
        "cancelled",
        "failed",
        "order",
        "plain",
    ]


async def test_a_list_begins_at_one_time_and_ends_before_another(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    now: datetime = await notifications.connection.fetchval("SELECT date_trunc('second', now())")
    for seconds in range(4):
        await notifications.insert(f"{seconds}", created_at=now + timedelta(seconds=seconds))
    since, before = now + timedelta(seconds=1), now + timedelta(seconds=3)
    assert await keys(scheduler, listed(created_since=since, created_before=before)) == ["2", "1"]
    assert await keys(scheduler, listed(created_since=since)) == ["3", "2", "1"]
    assert await keys(scheduler, listed(created_before=since)) == ["0"]
    assert await keys(scheduler, listed(created_since=before, created_before=since)) == []


@pytest.mark.parametrize("page_size", [1, 5, 22, 23, 24])
@pytest.mark.parametrize("fields", [{}, {"reference": "order"}, {"channel": EMAIL, "address": "someone@example.com"}])
async def test_rows_of_one_instant_page_without_skip_or_repeat(
    scheduler: Scheduler, notifications: Notifications, page_size: int, fields: Mapping[str, Any]
) -> None:
    instant = datetime.now(UTC)
    for number in range(23):
        await notifications.insert(f"{number}", created_at=instant, reference="order")
    pages = await all_pages(scheduler, listed(page_size=page_size, **fields))
    assert [key for page in pages for key in page] == [f"{number}" for number in reversed(range(23))]
    assert max(map(len, pages)) <= page_size


async def test_what_is_accepted_meanwhile_hides_nothing(scheduler: Scheduler, notifications: Notifications) -> None:
    for number in range(6):
        await notifications.insert(f"{number}")
    request, found = listed(page_size=2), []
    for number in range(3):
        page = await scheduler.ListNotifications(request)
        found += [row.idempotency_key for row in page.notifications]
        request.page_token = page.next_page_token
        await notifications.insert(f"meanwhile {number}")
    assert found == ["5", "4", "3", "2", "1", "0"]


async def fill(notifications: Notifications, count: int, **columns: str) -> None:
    """Many, cheaply; `columns` are SQL over the number `n`."""
    said = {"tenant_id": "'default'", "idempotency_key": "'many ' || n", "fingerprint": "''", "channel": "'EMAIL'"}
    said |= {"address": "'someone@example.com'", "priority": "2", "max_attempts": "5"} | columns
    said |= {"due_at": "now()", "next_attempt_at": "now()"}
    await notifications.connection.execute(
        f"INSERT INTO notifyqueue.notifications ({', '.join(said)})"
        f" SELECT {', '.join(said.values())} FROM generate_series(1, {count}) AS n"
    )


@pytest.mark.parametrize(
    ("columns", "fields"),
    [
        ({}, {"channel": "CHANNEL_SMS"}),
        ({}, {"status": "STATUS_SENT"}),
        ({"reference": "'order'"}, {"reference": "order", "channel": "CHANNEL_SMS"}),
        ({"address": "'ada@example.com'"}, {"channel": EMAIL, "address": "ada@example.com", "status": "STATUS_SENT"}),
        (
            {"status": "'CANCELLED'", "finished_at": "now()"},
            {"status": "STATUS_CANCELLED", "channel": "CHANNEL_SMS"},
        ),
    ],
    ids=["all", "a common status", "reference", "address", "a rare status"],
)
async def test_a_page_stops_after_10_000_rows_that_do_not_match(
    scheduler: Scheduler, notifications: Notifications, columns: Mapping[str, str], fields: Mapping[str, Any]
) -> None:
    facts: dict[str, Any] = {"reference": "order", "address": "ada@example.com", "channel": "SMS"}
    if fields.get("status") == "STATUS_CANCELLED":
        facts |= {"status": "CANCELLED", **STATUSES["CANCELLED"]}
    elif fields.get("status") == "STATUS_SENT":
        facts |= {"status": "SENT", "channel": "EMAIL", **STATUSES["SENT"]}
    await notifications.insert("found", **facts)
    await fill(notifications, SCANNED, **columns)
    first, second = await all_pages(scheduler, listed(**fields))
    assert (first, second) == ([], ["found"])


async def test_a_list_that_was_read_to_its_end_has_no_next_page(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    await fill(notifications, SCANNED - 1)
    page = await scheduler.ListNotifications(listed(channel="CHANNEL_SMS"))
    assert (len(page.notifications), page.next_page_token) == (0, "")


class Erasing:
    """After each statement, somebody erases what it has just passed over."""

    def __init__(self, executor: Executor, notifications: Notifications) -> None:
        self._executor = executor
        self._notifications = notifications

    async def fetch(self, query: str, /, *args: object) -> "list[asyncpg.Record]":
        rows = await self._executor.fetch(query, *args)
        await self._notifications.connection.execute(
            "DELETE FROM notifyqueue.notifications WHERE idempotency_key LIKE 'many %' AND random() < 0.5"
        )
        return rows


async def test_what_is_erased_meanwhile_hides_nothing(database: Database, notifications: Notifications) -> None:
    await notifications.insert("found", channel="SMS")
    await fill(notifications, SCANNED)
    store, sms = Store(Erasing(database, notifications)), Filter(channel="SMS")
    rows, end = await list_page(store, "default", sms, Page(50))
    assert (rows, end is not None) == ([], True)
    assert end
    rows, end = await list_page(store, "default", sms, Page(50, before=end))
    assert ([row.idempotency_key for row in rows], end) == (["found"], None)


async def test_a_short_page_goes_on_below_what_was_looked_at(database: Database, notifications: Notifications) -> None:
    await notifications.insert("older", channel="SMS")
    await fill(notifications, SCANNED // 2)
    await notifications.insert("newer", channel="SMS")
    await fill(notifications, SCANNED // 2 - 1, idempotency_key="'above ' || n")
    store, sms = Store(database), Filter(channel="SMS")
    rows, end = await list_page(store, "default", sms, Page(50))
    assert [row.idempotency_key for row in rows] == ["newer"]
    assert end
    rows, end = await list_page(store, "default", sms, Page(50, before=end))
    assert ([row.idempotency_key for row in rows], end) == (["older"], None)


@pytest.mark.parametrize(("page_size", "rows"), [(0, 50), (1, 1), (999, 999), (1_000, 1_000), (1_001, 1_000)])
async def test_a_page_has_as_many_rows_as_asked_for_within_bounds(
    scheduler: Scheduler, notifications: Notifications, page_size: int, rows: int
) -> None:
    await fill(notifications, 1_005)
    page = await scheduler.ListNotifications(listed(page_size=page_size))
    assert len(page.notifications) == rows


async def test_a_page_is_no_larger_than_a_client_takes_and_the_next_one_goes_on_behind_it(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    label, key = "\N{PILE OF POO}" * 255, "\N{PILE OF POO}" * 60
    labels = json.dumps({f"{number}{key}": label for number in range(16)}, ensure_ascii=False)
    await fill(notifications, 400, labels=f"'{labels}'")
    pages = await all_pages(scheduler, listed(page_size=1_000))
    assert len(pages) == 3
    assert [key for page in pages for key in page] == [f"many {number}" for number in range(400, 0, -1)]


async def test_a_long_timeline_has_its_newest_entries_oldest_first(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    id_ = await notifications.insert("order-1")
    await notifications.connection.execute(
        "INSERT INTO notifyqueue.notification_history (notification_id, kind, attempt)"
        " SELECT $1, 'WAITED', number FROM generate_series(1, 1005) AS number",
        id_,
    )
    found = (await scheduler.GetNotification(get(notification_id=str(id_), include_timeline=True))).notification
    assert found.timeline[0].kind == Entry.KIND_ACCEPTED
    assert [entry.attempt for entry in found.timeline[1:]] == list(range(6, 1_006))


async def test_a_listed_notification_is_the_one_that_is_got(scheduler: Scheduler, notifications: Notifications) -> None:
    id_ = await notifications.insert("order-1", labels='{"a": "b"}', expire_at=datetime.now(UTC) + HOUR)
    (row,) = (await scheduler.ListNotifications(listed())).notifications
    assert row == (await scheduler.GetNotification(get(notification_id=str(id_)))).notification
