"""Redriving by a filter sends back what fits and died, oldest first, and tells how much is left."""

import itertools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import grpc.aio
import pytest

from notifyqueue.v1 import notification_pb2, scheduler_pb2, scheduler_pb2_grpc
from services.scheduler.listing import SCANNED
from tests.integration.test_get_list_cancel import STATUSES, fill
from tests.notifications import Notifications

Scheduler = scheduler_pb2_grpc.SchedulerStub

EMAIL = notification_pb2.CHANNEL_EMAIL
DEAD: Mapping[str, Any] = {"status": "DEAD_LETTERED", **STATUSES["DEAD_LETTERED"], "attempt_count": 5}
FAILED: Mapping[str, Any] = {"status": "FAILED", **STATUSES["FAILED"], "attempt_count": 1}
MINUTE = timedelta(minutes=1)


async def redrive(
    scheduler: Scheduler, *, limit: int = 0, dry_run: bool = False, reason: str = "", over: Any = None, **filter_: Any
) -> tuple[int, int, bool, int]:
    """How many were redriven, how many remain, whether there may be more, and how many were passed over."""
    request = scheduler_pb2.BulkRedriveNotificationsRequest(
        filter=notification_pb2.NotificationFilter(**filter_),
        limit=limit,
        dry_run=dry_run,
        reason=reason,
        spread_over=over,
    )
    answer = await scheduler.BulkRedriveNotifications(request)
    return answer.redriven, answer.remaining.count, answer.remaining.at_least, answer.passed_over


async def keys(notifications: Notifications) -> list[str]:
    """Of what was redriven, oldest first."""
    rows = await notifications.connection.fetch(
        "SELECT idempotency_key FROM notifyqueue.notifications"
        " WHERE status = 'PENDING' AND redrive_count = 1 ORDER BY id"
    )
    return [row["idempotency_key"] for row in rows]


async def fill_dead(notifications: Notifications, count: int) -> None:
    """Dead mails, the oldest "many 1"."""
    await fill(notifications, count, status="'DEAD_LETTERED'", finished_at="now()", failure_reason="'WORKER_LOST'")
    await notifications.connection.execute(
        "INSERT INTO notifyqueue.notification_contents"
        " SELECT id, '{}' FROM notifyqueue.notifications ON CONFLICT DO NOTHING"
    )


@pytest.mark.parametrize("database_url", ["postgres", "postgres_15"], indirect=True)
async def test_what_fits_is_redriven_with_its_entry_and_without_an_event(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    ids = [await notifications.insert(f"{number}", reference="order", **DEAD) for number in range(3)]
    other = await notifications.insert("other", reference="other", **DEAD)
    assert await redrive(scheduler, reference="order", reason="it is back") == (3, 0, False, 0)
    for id_ in ids:
        (entry,) = await notifications.history(id_)
        assert (entry["kind"], entry["note"], entry["actor"]) == ("REDRIVEN", "it is back", "anonymous")
        assert await notifications.events(id_) == []
        row = await notifications.get(id_)
        assert (row["status"], row["revision"], row["attempt_count"], row["redrive_count"]) == ("PENDING", 2, 0, 1)
    assert await notifications.status(other) == "DEAD_LETTERED"
    assert await redrive(scheduler, reference="order") == (0, 0, False, 0)


@pytest.fixture
async def various(notifications: Notifications) -> None:
    """Dead ones that differ in one thing or another, of each of two tenants, oldest first."""
    await notifications.connection.execute("INSERT INTO notifyqueue.tenants (id) VALUES ('other')")
    await notifications.connection.execute("UPDATE notifyqueue.tenants SET region = 'GB' WHERE id = 'default'")
    rows: Sequence[tuple[str, Mapping[str, Any]]] = [
        ("plain", DEAD),
        ("order", {**DEAD, "reference": "order"}),
        ("ada", {**DEAD, "address": "ada@example.com"}),
        ("ada order", {**DEAD, "address": "ada@example.com", "reference": "order"}),
        ("sms", {**DEAD, "channel": "SMS", "address": "+447700900123"}),
        ("push order", {**DEAD, "channel": "PUSH", "address": "token", "reference": "order"}),
        ("failed order", {**FAILED, "reference": "order"}),
    ]
    for key, columns in rows:
        await notifications.insert(key, **columns)
        await notifications.insert(key, tenant_id="other", **columns)


@pytest.mark.usefixtures("various")
@pytest.mark.parametrize(
    ("filter_", "redriven"),
    [
        ({"reference": "order"}, ["order", "ada order", "push order"]),
        ({"reference": "order", "status": "STATUS_DEAD_LETTERED"}, ["order", "ada order", "push order"]),
        ({"reference": "order", "status": "STATUS_FAILED"}, ["failed order"]),
        ({"reference": "order", "channel": EMAIL}, ["order", "ada order"]),
        ({"channel": EMAIL, "address": "ada@EXAMPLE.com"}, ["ada", "ada order"]),
        ({"channel": "CHANNEL_SMS", "address": "07700 900123"}, ["sms"]),
        ({"channel": "CHANNEL_PUSH"}, ["push order"]),
        ({"created_before": datetime(2020, 1, 1, tzinfo=UTC)}, []),
        ({"created_since": datetime(2020, 1, 1, tzinfo=UTC), "channel": "CHANNEL_SMS"}, ["sms"]),
    ],
)
async def test_a_filter_means_what_it_means_to_a_list(
    scheduler: Scheduler, notifications: Notifications, filter_: Mapping[str, Any], redriven: Sequence[str]
) -> None:
    assert await redrive(scheduler, dry_run=True, **filter_) == (len(redriven), 0, False, 0)
    assert await keys(notifications) == []
    assert await redrive(scheduler, **filter_) == (len(redriven), 0, False, 0)
    assert await keys(notifications) == redriven


@pytest.mark.parametrize("status", ["DEAD_LETTERED", "FAILED"])
async def test_what_is_in_another_status_stays_as_it_is(
    scheduler: Scheduler, notifications: Notifications, status: str
) -> None:
    for other, columns in STATUSES.items():
        await notifications.insert(other, status=other, attempt_count=1, reference="order", **columns)
    assert await redrive(scheduler, reference="order", status=f"STATUS_{status}") == (1, 0, False, 0)
    others = {other: 1 for other in STATUSES if other not in ("PENDING", status)}
    assert await notifications.statuses() == others | {"PENDING": 2}


@pytest.mark.parametrize("dry_run", [True, False])
async def test_the_oldest_go_first_and_no_more_than_the_limit(
    scheduler: Scheduler, notifications: Notifications, dry_run: bool
) -> None:
    await fill_dead(notifications, 150)
    assert await redrive(scheduler, channel=EMAIL, limit=3, dry_run=dry_run) == (3, 147, False, 0)
    assert await keys(notifications) == ([] if dry_run else ["many 1", "many 2", "many 3"])
    assert await redrive(scheduler, channel=EMAIL, dry_run=True) == (100, 50 if dry_run else 47, False, 0)


async def due_in(notifications: Notifications) -> list[timedelta]:
    """How long after its redrive each is due, oldest first."""
    rows = await notifications.connection.fetch(
        "SELECT next_attempt_at - last_redriven_at AS span FROM notifyqueue.notifications"
        " WHERE status = 'PENDING' ORDER BY id"
    )
    return [row["span"] for row in rows]


async def test_without_a_span_all_are_due_at_once(scheduler: Scheduler, notifications: Notifications) -> None:
    await fill_dead(notifications, 5)
    await redrive(scheduler, channel=EMAIL)
    assert await due_in(notifications) == [timedelta()] * 5


async def test_over_a_span_they_become_due_one_by_one(scheduler: Scheduler, notifications: Notifications) -> None:
    await fill_dead(notifications, 25)
    assert await redrive(scheduler, channel=EMAIL, limit=20, over=10 * MINUTE) == (20, 5, False, 0)
    assert await due_in(notifications) == [MINUTE / 2 * number for number in range(20)]


async def test_what_would_expire_before_its_turn_stays_and_another_has_the_turn(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    await notifications.insert("first", **DEAD)
    soon = await notifications.insert("soon", expire_at=datetime.now(UTC) + 5 * MINUTE, **DEAD)
    for key in ("third", "fourth"):
        await notifications.insert(key, **DEAD)
    assert await redrive(scheduler, channel=EMAIL, limit=3, over=30 * MINUTE) == (3, 0, False, 1)
    assert await notifications.status(soon) == "DEAD_LETTERED"
    assert sorted(await due_in(notifications)) == [0 * MINUTE, 10 * MINUTE, 20 * MINUTE]


async def test_what_cannot_be_sent_or_must_not_be_sent_twice_is_passed_over(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    unknown = {**FAILED, "failure_reason": "OUTCOME_UNKNOWN"}
    await notifications.insert("expired", due_in=-2 * MINUTE, expire_at=datetime.now(UTC) - MINUTE, **FAILED)
    erased = await notifications.insert("erased", **FAILED)
    await notifications.connection.execute(
        "DELETE FROM notifyqueue.notification_contents WHERE notification_id = $1", erased
    )
    await notifications.insert("unknown", at_most_once=True, **unknown)
    await notifications.insert("once, and redriven", at_most_once=True, maybe_delivered=True, **FAILED)
    await notifications.insert("refused", at_most_once=True, **FAILED)
    await notifications.insert("at least once", maybe_delivered=True, **unknown)
    for dry_run in (True, False):
        assert await redrive(scheduler, channel=EMAIL, status="STATUS_FAILED", dry_run=dry_run) == (2, 0, False, 4)
    assert await keys(notifications) == ["refused", "at least once"]


async def test_matches_are_found_above_10_000_that_do_not_fit(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    await fill_dead(notifications, SCANNED)
    await notifications.insert("found", channel="SMS", address="+447700900123", **DEAD)
    assert await redrive(scheduler, channel="CHANNEL_SMS") == (1, 0, False, 0)
    assert await keys(notifications) == ["found"]


@pytest.mark.parametrize(("more", "remaining"), [(10_000, (10_000, False)), (10_001, (10_000, True))])
async def test_the_rest_is_counted_up_to_10_000(
    scheduler: Scheduler, notifications: Notifications, more: int, remaining: tuple[int, bool]
) -> None:
    await fill_dead(notifications, 1_000 + more)
    assert await redrive(scheduler, channel=EMAIL, limit=1_000) == (1_000, *remaining, 0)
    assert len(await keys(notifications)) == 1_000


async def test_when_half_of_its_time_is_over_it_looks_no_further_and_says_so(
    scheduler: Scheduler, notifications: Notifications, monkeypatch: pytest.MonkeyPatch
) -> None:
    await notifications.insert("first", channel="SMS", address="+447700900123", **DEAD)
    await fill_dead(notifications, SCANNED)
    await notifications.insert("last", channel="SMS", address="+447700900123", **DEAD)
    # As good as minutes pass between one look at the clock and the next.
    monkeypatch.setattr("services.scheduler.rpc.tick", itertools.count(0, 600).__next__)
    assert await redrive(scheduler, channel="CHANNEL_SMS") == (1, 0, True, 0)
    assert await keys(notifications) == ["first"]


async def test_one_that_somebody_holds_is_passed_over_and_holds_up_no_other(
    scheduler: Scheduler, notifications: Notifications, database_url: str
) -> None:
    held, *others = [await notifications.insert(f"{number}", reference="order", **DEAD) for number in range(3)]
    connection = await asyncpg.connect(database_url)
    try:
        async with connection.transaction():
            await connection.execute("SELECT FROM notifyqueue.notifications WHERE id = $1 FOR UPDATE", held)
            assert await redrive(scheduler, reference="order") == (2, 0, True, 0)
    finally:
        await connection.close()
    assert [await notifications.status(id_) for id_ in (held, *others)] == ["DEAD_LETTERED", "PENDING", "PENDING"]


async def redrive_on(
    scheduler: Scheduler, token: str, *, limit: int = 2, dry_run: bool = False, **filter_: Any
) -> tuple[int, int, bool, int, str]:
    """As `redrive`, and where the next one goes on."""
    request = scheduler_pb2.BulkRedriveNotificationsRequest(
        filter=notification_pb2.NotificationFilter(**filter_), limit=limit, dry_run=dry_run, page_token=token
    )
    found = await scheduler.BulkRedriveNotifications(request)
    rest = found.remaining
    return found.redriven, rest.count, rest.at_least, found.passed_over, found.next_page_token


@pytest.mark.parametrize("dry_run", [True, False])
async def test_calls_that_go_on_try_each_once_and_tell_each_that_was_passed_over_once(
    scheduler: Scheduler, notifications: Notifications, dry_run: bool
) -> None:
    unknown = {**FAILED, "failure_reason": "OUTCOME_UNKNOWN", "at_most_once": True}
    for number in range(9):
        await notifications.insert(f"{number}", **(unknown if number % 3 == 0 else FAILED))
    token = ""
    told: list[Sequence[object]] = []
    redriven: list[list[str]] = []
    while token or not told:
        *counts, token = await redrive_on(scheduler, token, dry_run=dry_run, channel=EMAIL, status="STATUS_FAILED")
        told.append(counts)
        redriven.append(await keys(notifications))
    assert told == [[2, 4, False, 1], [2, 2, False, 1], [2, 0, False, 1]]
    assert redriven == ([[]] * 3 if dry_run else [["1", "2"], ["1", "2", "4", "5"], ["1", "2", "4", "5", "7", "8"]])


async def test_what_is_passed_over_hides_nothing_from_calls_that_go_on(
    scheduler: Scheduler, notifications: Notifications, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill_dead(notifications, SCANNED)
    await notifications.connection.execute(
        "UPDATE notifyqueue.notifications SET at_most_once = true, maybe_delivered = true"
    )
    await notifications.insert("last", **DEAD)
    monkeypatch.setattr("services.scheduler.rpc.tick", itertools.count(0, 600).__next__)
    for _ in range(2):  # again without the token: the same are looked through
        *counts, token = await redrive_on(scheduler, "", channel=EMAIL)
        assert counts == [0, 0, True, SCANNED]
    assert await redrive_on(scheduler, token, channel=EMAIL) == (1, 0, False, 0, "")
    assert await keys(notifications) == ["last"]


async def test_a_token_is_of_its_filter_and_of_no_other_call(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    await fill_dead(notifications, 3)
    *_, token = await redrive_on(scheduler, "", limit=1, channel=EMAIL)
    cancel = scheduler_pb2.BulkCancelNotificationsRequest(
        filter=notification_pb2.NotificationFilter(channel=EMAIL), page_token=token
    )
    for refused in (
        redrive_on(scheduler, token, channel="CHANNEL_SMS"),
        redrive_on(scheduler, "invented", channel=EMAIL),
        scheduler.BulkCancelNotifications(cancel),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await refused
        assert dict(error.value.trailing_metadata())["error-reason"] == "PAGE_TOKEN_INVALID"
