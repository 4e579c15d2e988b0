"""Cancelling by a filter ends what fits and is PENDING, newest first, and tells how much is left."""

import itertools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from notifyqueue.v1 import notification_pb2, scheduler_pb2, scheduler_pb2_grpc
from services.scheduler.listing import SCANNED
from tests.integration.test_get_list_cancel import STATUSES, fill
from tests.notifications import Notifications

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
            assert (await cancel(scheduler, reference="order"))[0] == 2
    finally:
        await connection.close()
    assert [await notifications.status(id_) for id_ in (held, *others)] == ["PENDING", "CANCELLED", "CANCELLED"]


async def test_the_timeline_tells_it(scheduler: Scheduler, notifications: Notifications) -> None:
    await notifications.insert("order-1", reference="order")
    await cancel(scheduler, reference="order", reason="sold out")
    request = scheduler_pb2.GetNotificationRequest(idempotency_key="order-1", include_timeline=True)
    found = (await scheduler.GetNotification(request)).notification
    assert [(entry.kind, entry.note) for entry in found.timeline] == [
        (Entry.KIND_ACCEPTED, ""),
        (Entry.KIND_CANCELLED, "sold out"),
    ]
