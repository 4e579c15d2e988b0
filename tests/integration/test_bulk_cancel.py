"""Cancelling by a filter ends what fits and is PENDING, newest first, and tells how much is left."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import asyncpg
import grpc.aio
import pytest

from notifyqueue.v1 import notification_pb2, scheduler_pb2, scheduler_pb2_grpc
from services.scheduler.bulk import Ended
from services.scheduler.listing import SCANNED
from services.scheduler.store import Store
from shared.database import Database
from shared.errors import DatabaseUnavailable
from shared.listener import EVENTS_TOPIC
from tests.conftest import login
from tests.integration.test_get_list_cancel import STATUSES, fill
from tests.notifications import Notifications
from tests.waiting import eventually

Scheduler = scheduler_pb2_grpc.SchedulerStub
Entry = notification_pb2.TimelineEntry

EMAIL = notification_pb2.CHANNEL_EMAIL


async def cancel(
    scheduler: Scheduler, *, limit: int = 0, dry_run: bool = False, reason: str = "", **filter_: Any
) -> tuple[int, int, bool]:
    """How many were cancelled, how many remain, and whether there may be more."""
    request = scheduler_pb2.BulkCancelNotificationsRequest(
        filter=notification_pb2.NotificationFilter(**filter_), limit=limit, dry_run=dry_run, reason=reason
    )
    answer = await scheduler.BulkCancelNotifications(request)
    return answer.cancelled, answer.remaining.count, answer.remaining.at_least


async def keys(notifications: Notifications, status: str = "CANCELLED") -> list[str]:
    rows = await notifications.connection.fetch(
        "SELECT idempotency_key FROM notifyqueue.notifications WHERE status::text = $1 ORDER BY id DESC", status
    )
    return [row["idempotency_key"] for row in rows]


async def test_what_fits_is_cancelled_with_its_entry_and_its_event(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    ids = [await notifications.insert(f"{number}", reference="order") for number in range(3)]
    other = await notifications.insert("other", reference="other")
    assert await cancel(scheduler, reference="order", reason="sold out") == (3, 0, False)
    for id_ in ids:
        (entry,) = await notifications.history(id_)
        assert (entry["kind"], entry["note"], entry["actor"]) == ("CANCELLED", "sold out", "anonymous")
        assert await notifications.events(id_) == ["CANCELLED"]
        row = await notifications.get(id_)
        assert (row["status"], row["revision"], row["finished_at"] is not None) == ("CANCELLED", 2, True)
    assert await notifications.status(other) == "PENDING"
    assert await cancel(scheduler, reference="order") == (0, 0, False)


@pytest.fixture
async def various(notifications: Notifications) -> None:
    """Some that differ in one thing or another, of each of two tenants, oldest first."""
    await notifications.connection.execute("INSERT INTO notifyqueue.tenants (id) VALUES ('other')")
    await notifications.connection.execute("UPDATE notifyqueue.tenants SET region = 'GB' WHERE id = 'default'")
    rows: Sequence[tuple[str, Mapping[str, Any]]] = [
        ("plain", {}),
        ("order", {"reference": "order"}),
        ("ada", {"address": "ada@example.com"}),
        ("ada order", {"address": "ada@example.com", "reference": "order"}),
        ("sms", {"channel": "SMS", "address": "+447700900123"}),
        ("push order", {"channel": "PUSH", "address": "token", "reference": "order"}),
        ("waits", {"channel": "PUSH", "address": "token", "waiting": True}),
    ]
    for key, columns in rows:
        await notifications.insert(key, **columns)
        await notifications.insert(key, tenant_id="other", **columns)


@pytest.mark.usefixtures("various")
@pytest.mark.parametrize(
    ("filter_", "cancelled"),
    [
        ({"reference": "order"}, ["push order", "ada order", "order"]),
        ({"reference": "order", "status": "STATUS_PENDING"}, ["push order", "ada order", "order"]),
        ({"reference": "order", "channel": EMAIL}, ["ada order", "order"]),
        ({"channel": EMAIL, "address": "ada@EXAMPLE.com"}, ["ada order", "ada"]),
        ({"channel": EMAIL, "address": "ada@example.com", "reference": "order"}, ["ada order"]),
        ({"channel": "CHANNEL_SMS", "address": "07700 900123"}, ["sms"]),
        ({"channel": "CHANNEL_PUSH", "address": "token"}, ["waits", "push order"]),
        ({"channel": "CHANNEL_PUSH"}, ["waits", "push order"]),
        ({"created_before": datetime(2020, 1, 1, tzinfo=UTC)}, []),
        ({"created_since": datetime(2020, 1, 1, tzinfo=UTC), "channel": "CHANNEL_SMS"}, ["sms"]),
    ],
)
async def test_a_filter_means_what_it_means_to_a_list(
    scheduler: Scheduler, notifications: Notifications, filter_: Mapping[str, Any], cancelled: Sequence[str]
) -> None:
    assert await cancel(scheduler, dry_run=True, **filter_) == (len(cancelled), 0, False)
    assert await keys(notifications) == []
    assert await cancel(scheduler, **filter_) == (len(cancelled), 0, False)
    assert await keys(notifications) == cancelled


async def test_what_is_not_pending_stays_as_it_is(scheduler: Scheduler, notifications: Notifications) -> None:
    for status, columns in STATUSES.items():
        await notifications.insert(status, status=status, attempt_count=1, reference="order", **columns)
    assert await cancel(scheduler, reference="order") == (1, 0, False)
    others = {status: 1 for status in STATUSES if status not in ("PENDING", "CANCELLED")}
    assert await notifications.statuses() == others | {"CANCELLED": 2}


@pytest.mark.parametrize("dry_run", [True, False])
async def test_the_newest_go_first_and_no_more_than_the_limit(
    scheduler: Scheduler, notifications: Notifications, dry_run: bool
) -> None:
    await fill(notifications, 150, reference="'order'")
    assert await cancel(scheduler, reference="order", limit=3, dry_run=dry_run) == (3, 147, False)
    assert await keys(notifications) == ([] if dry_run else ["many 150", "many 149", "many 148"])
    assert await cancel(scheduler, reference="order", dry_run=True) == (100, 50 if dry_run else 47, False)


async def test_matches_are_found_below_10_000_that_do_not_fit(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    await notifications.insert("found", channel="SMS", address="+447700900123")
    await fill(notifications, 2 * SCANNED + 1)
    assert await cancel(scheduler, channel="CHANNEL_SMS") == (1, 0, False)
    assert await keys(notifications) == ["found"]


@pytest.mark.parametrize(("more", "remaining"), [(10_000, (10_000, False)), (10_001, (10_000, True))])
async def test_the_rest_is_counted_up_to_10_000(
    scheduler: Scheduler, notifications: Notifications, more: int, remaining: tuple[int, bool]
) -> None:
    await fill(notifications, 1_000 + more)
    assert await cancel(scheduler, channel="CHANNEL_EMAIL", limit=1_000) == (1_000, *remaining)


async def test_when_half_of_its_time_is_over_it_stops_and_says_so(
    scheduler: Scheduler, notifications: Notifications, monkeypatch: pytest.MonkeyPatch
) -> None:
    await notifications.insert("found", channel="SMS", address="+447700900123")
    await fill(notifications, SCANNED)
    # As good as minutes pass between one look at the clock and the next.
    monkeypatch.setattr("services.scheduler.rpc.tick", itertools.count(0, 600).__next__)
    assert await cancel(scheduler, channel="CHANNEL_SMS") == (0, 0, True)


async def test_one_that_somebody_holds_is_passed_over_and_holds_up_no_other(
    scheduler: Scheduler, notifications: Notifications, database_url: str
) -> None:
    held, *others = [await notifications.insert(f"{number}", reference="order") for number in range(3)]
    connection = await asyncpg.connect(database_url)
    try:
        async with connection.transaction():
            await connection.execute("SELECT FROM notifyqueue.notifications WHERE id = $1 FOR UPDATE", held)
            assert await cancel(scheduler, reference="order") == (2, 0, True)
    finally:
        await connection.close()
    assert [await notifications.status(id_) for id_ in (held, *others)] == ["PENDING", "CANCELLED", "CANCELLED"]


async def pages(
    scheduler: Scheduler, request: scheduler_pb2.BulkCancelNotificationsRequest
) -> list[scheduler_pb2.BulkCancelNotificationsResponse]:
    """The answers of calls that go on, until none is to."""
    answers = [await scheduler.BulkCancelNotifications(request)]
    while answers[-1].next_page_token:
        request.page_token = answers[-1].next_page_token
        answers.append(await scheduler.BulkCancelNotifications(request))
    return answers


@pytest.mark.parametrize("dry_run", [True, False])
async def test_each_call_goes_on_where_the_one_before_it_stopped(
    scheduler: Scheduler, notifications: Notifications, dry_run: bool
) -> None:
    await fill(notifications, 25, reference="'order'")
    filter_ = notification_pb2.NotificationFilter(reference="order")
    request = scheduler_pb2.BulkCancelNotificationsRequest(filter=filter_, limit=10, dry_run=dry_run)
    answers = await pages(scheduler, request)
    assert [(answer.cancelled, answer.remaining.count) for answer in answers] == [(10, 15), (10, 5), (5, 0)]
    assert len(await keys(notifications)) == (0 if dry_run else 25)


async def test_after_its_half_time_a_call_goes_on_below_what_was_looked_through(
    scheduler: Scheduler, notifications: Notifications, monkeypatch: pytest.MonkeyPatch
) -> None:
    await notifications.insert("found", channel="SMS", address="+447700900123")
    await fill(notifications, SCANNED)
    monkeypatch.setattr("services.scheduler.rpc.tick", itertools.count(0, 600).__next__)
    filter_ = notification_pb2.NotificationFilter(channel=notification_pb2.CHANNEL_SMS)
    request = scheduler_pb2.BulkCancelNotificationsRequest(filter=filter_)
    assert [answer.cancelled for answer in await pages(scheduler, request)] == [0, 1]


async def test_a_token_is_bound_to_its_filter_and_to_cancelling(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    await fill(notifications, 3, reference="'order'")
    filter_ = notification_pb2.NotificationFilter(reference="order")
    ask = scheduler_pb2.BulkCancelNotificationsRequest
    token = (await scheduler.BulkCancelNotifications(ask(filter=filter_, limit=1))).next_page_token
    listed = await scheduler.ListNotifications(scheduler_pb2.ListNotificationsRequest(filter=filter_, page_size=1))
    other = notification_pb2.NotificationFilter(reference="other")
    for wrong in (ask(filter=other, page_token=token), ask(filter=filter_, page_token=listed.next_page_token)):
        with pytest.raises(grpc.aio.AioRpcError, match="page_token"):
            await scheduler.BulkCancelNotifications(wrong)
    assert len(await keys(notifications)) == 1


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with Database(login(database_url, "scheduler"), name="test") as database:
        yield Store(database)


async def test_rows_are_taken_in_one_order_whatever_order_they_are_named_in(
    store: Store, notifications: Notifications, database_url: str
) -> None:
    ids = sorted([await notifications.insert(f"{number}") for number in range(3)])
    holder = await asyncpg.connect(database_url)
    locking = "SELECT FROM notifyqueue.notifications WHERE id = $1 FOR UPDATE"
    try:
        transaction = holder.transaction()
        await transaction.start()
        await holder.execute(locking, ids[0])
        cancelling = asyncio.create_task(store.cancel_notifications("default", ids[::-1], "key:1", ""))
        await eventually(lambda: waits(notifications))
        # It waits for the first, and has taken none of those behind it.
        async with notifications.connection.transaction():
            for id_ in ids[1:]:
                await notifications.connection.execute(f"{locking} NOWAIT", id_)
        await transaction.rollback()
        assert await cancelling == Ended(3)
    finally:
        await holder.close()


async def waits(notifications: Notifications) -> bool:
    """Whether somebody waits for a lock."""
    found = await notifications.connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted")
    return bool(found)


async def test_another_tenants_ids_end_nothing(store: Store, notifications: Notifications) -> None:
    id_ = await notifications.insert("theirs")
    assert await store.cancel_notifications("other", [id_], "key:1", "") == Ended(0)
    assert await notifications.status(id_) == "PENDING"
    assert await notifications.history(id_) == []


@pytest.mark.parametrize("method", ["bulk", "single"])
async def test_what_was_cancelled_before_a_call_failed_is_told_to_those_who_report_it(
    scheduler: Scheduler,
    notifications: Notifications,
    monkeypatch: pytest.MonkeyPatch,
    database_url: str,
    method: str,
) -> None:
    id_ = await notifications.insert("found", reference="order")
    await fill(notifications, SCANNED, reference="'order'")
    heard: asyncio.Queue[object] = asyncio.Queue()
    listener = await asyncpg.connect(database_url)
    await listener.add_listener(EVENTS_TOPIC, lambda *_: heard.put_nowait(None))

    async def fail(*_: object) -> None:
        raise DatabaseUnavailable

    if method == "single":
        monkeypatch.setattr(Store, "read_notification", fail)
        request = scheduler_pb2.CancelNotificationRequest(notification_id=str(id_))
        call: Awaitable[object] = scheduler.CancelNotification(request)
    else:
        monkeypatch.setattr(Store, "find_pending", failing_after(Store.find_pending, fail))
        call = cancel(scheduler, reference="order", limit=1)
    try:
        with pytest.raises(grpc.aio.AioRpcError, match="the database did not answer"):
            await call
        async with asyncio.timeout(30):
            await heard.get()
    finally:
        await listener.close()
    assert (await notifications.statuses())["CANCELLED"] == 1


def failing_after(first: Callable[..., Any], then: Callable[..., Any]) -> Callable[..., Any]:
    """`first` once, and from then on `then`."""
    turns = iter([first])
    return lambda *args: next(turns, then)(*args)


async def test_the_timeline_tells_it(scheduler: Scheduler, notifications: Notifications) -> None:
    await notifications.insert("order-1", reference="order")
    await cancel(scheduler, reference="order", reason="sold out")
    request = scheduler_pb2.GetNotificationRequest(idempotency_key="order-1", include_timeline=True)
    found = (await scheduler.GetNotification(request)).notification
    assert [(entry.kind, entry.note) for entry in found.timeline] == [
        (Entry.KIND_ACCEPTED, ""),
        (Entry.KIND_CANCELLED, "sold out"),
    ]
