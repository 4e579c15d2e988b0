"""How the queue stands: exact counts up to their bound, of the tenant that asks."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from notifyqueue.v1 import notification_pb2, scheduler_pb2, scheduler_pb2_grpc
from services.scheduler.statistics import BOUND
from shared.database import Statements
from tests.notifications import Notifications

Scheduler = scheduler_pb2_grpc.SchedulerStub
Status = notification_pb2.Notification.Status
MERGE = Statements("services.worker")["merge_totals"]

HOUR = timedelta(hours=1)
NOTHING = (0, False)


async def stats(scheduler: Scheduler) -> scheduler_pb2.GetQueueStatsResponse:
    return await scheduler.GetQueueStats(scheduler_pb2.GetQueueStatsRequest())


async def lane(scheduler: Scheduler, channel: str = "EMAIL") -> Mapping[str, Any]:
    (found,) = [
        row
        for row in (await stats(scheduler)).lanes
        if row.channel == notification_pb2.Channel.Value(f"CHANNEL_{channel}")
    ]
    return {name: pair(getattr(found, name)) for name in ("due", "scheduled", "waiting", "processing")} | {
        "lag": found.lag.ToTimedelta()
    }


async def webhooks(scheduler: Scheduler) -> Mapping[str, Any]:
    found = (await stats(scheduler)).webhooks
    return {name: pair(getattr(found, name)) for name in ("unassigned", "pending", "given_up")}


def pair(count: scheduler_pb2.BoundedCount) -> tuple[int, bool]:
    return count.count, count.at_least


async def fill(notifications: Notifications, count: int, **columns: str) -> None:
    """Many, cheaply, due an hour ago; `columns` are SQL over the number `n`."""
    said = {"tenant_id": "'default'", "idempotency_key": "gen_random_uuid()", "fingerprint": "''", "channel": "'EMAIL'"}
    said |= {"address": "'someone@example.com'", "priority": "2", "max_attempts": "5"}
    said |= {"due_at": "now()", "next_attempt_at": "now() - interval '1 hour'"} | columns
    await notifications.connection.execute(
        f"INSERT INTO notifyqueue.notifications ({', '.join(said)})"
        f" SELECT {', '.join(said.values())} FROM generate_series(1, {count}) AS n"
    )


PROCESSING = {
    "status": "'PROCESSING'",
    "claim_token": "gen_random_uuid()",
    "worker_id": "gen_random_uuid()",
    "lease_expires_at": "now()",
    "attempt_count": "1",
}
SENT = {"status": "'SENT'", "finished_at": "now()"}
LATER = {"next_attempt_at": "now() + interval '1 hour'"}


def waits(channel: str = "EMAIL") -> dict[str, str]:
    """At one gate or another."""
    return {"channel": f"'{channel}'", "waiting": "true", "limit_key": f"'{channel} ' || n % 3"}


async def test_an_empty_queue_has_every_lane_and_nothing_in_it(scheduler: Scheduler) -> None:
    found = await stats(scheduler)
    assert [row.channel for row in found.lanes] == [
        notification_pb2.CHANNEL_EMAIL,
        notification_pb2.CHANNEL_SMS,
        notification_pb2.CHANNEL_PUSH,
    ]
    nothing = {"due": NOTHING, "scheduled": NOTHING, "waiting": NOTHING, "processing": NOTHING, "lag": timedelta()}
    assert [await lane(scheduler, channel) for channel in ("EMAIL", "SMS", "PUSH")] == [nothing] * 3
    assert await webhooks(scheduler) == {"unassigned": NOTHING, "pending": NOTHING, "given_up": NOTHING}


async def test_each_lane_counts_its_own(scheduler: Scheduler, notifications: Notifications) -> None:
    for channel, factor in (("EMAIL", 1), ("SMS", 10), ("PUSH", 100)):
        await fill(notifications, factor, channel=f"'{channel}'")
        await fill(notifications, factor * 2, channel=f"'{channel}'", **LATER)
        await fill(notifications, factor * 3, channel=f"'{channel}'", **PROCESSING)
        await fill(notifications, factor * 4, channel=f"'{channel}'", **SENT)
        await fill(notifications, factor * 5, **waits(channel))
    for channel, factor in (("EMAIL", 1), ("SMS", 10), ("PUSH", 100)):
        found = await lane(scheduler, channel)
        counts = [found[name] for name in ("due", "scheduled", "processing", "waiting")]
        assert counts == [(factor, False), (factor * 2, False), (factor * 3, False), (factor * 5, False)]


async def test_every_priority_counts(scheduler: Scheduler, notifications: Notifications) -> None:
    await fill(notifications, 30, priority="1 + n % 3")
    await fill(notifications, 60, priority="1 + n % 3", **LATER)
    found = await lane(scheduler)
    assert (found["due"], found["scheduled"]) == ((30, False), (60, False))


async def test_crash_suspects_count_like_others(scheduler: Scheduler, notifications: Notifications) -> None:
    await fill(notifications, 1)
    await fill(notifications, 2, expiries="1 + n", next_attempt_at="now() - interval '2 hours'")
    await fill(notifications, 4, expiries="2", **LATER)
    found = await lane(scheduler)
    assert (found["due"], found["scheduled"]) == ((3, False), (4, False))
    assert found["lag"] >= 2 * HOUR


async def test_lag_is_how_long_the_oldest_has_waited(scheduler: Scheduler, notifications: Notifications) -> None:
    await fill(notifications, 3, next_attempt_at="now() - n * interval '1 hour'", priority="4 - n")
    before = await notifications.connection.fetchval(
        "SELECT now() - min(next_attempt_at) FROM notifyqueue.notifications"
    )
    lag = (await lane(scheduler))["lag"]
    after = await notifications.connection.fetchval(
        "SELECT now() - min(next_attempt_at) FROM notifyqueue.notifications"
    )
    assert before <= lag <= after


async def test_what_is_due_later_lags_by_nothing(scheduler: Scheduler, notifications: Notifications) -> None:
    await fill(notifications, 3, **LATER)
    assert (await lane(scheduler))["lag"] == timedelta()


async def test_a_flood_of_urgent_ones_does_not_hide_how_long_others_wait(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    await fill(notifications, 1, priority="1", next_attempt_at="now() - interval '9 hours'")
    await fill(notifications, BOUND + 1, priority="3")
    assert (await lane(scheduler))["lag"] >= 9 * HOUR


@pytest.mark.parametrize(
    ("name", "columns"),
    [("due", {}), ("scheduled", LATER), ("processing", PROCESSING), ("due", {"expiries": "2"}), ("waiting", waits())],
    ids=["due", "scheduled", "processing", "suspects", "waiting"],
)
@pytest.mark.parametrize(("rows", "count"), [(BOUND, (BOUND, False)), (BOUND + 1, (BOUND, True))])
async def test_a_count_is_exact_up_to_its_bound(
    scheduler: Scheduler,
    notifications: Notifications,
    name: str,
    columns: Mapping[str, str],
    rows: int,
    count: tuple[int, bool],
) -> None:
    await fill(notifications, rows, **columns)
    assert (await lane(scheduler))[name] == count


async def test_the_bound_holds_over_all_priorities(scheduler: Scheduler, notifications: Notifications) -> None:
    await fill(notifications, 2 * BOUND, priority="1 + n % 3")
    assert (await lane(scheduler))["due"] == (BOUND, True)


async def test_what_is_another_tenants_counts_for_nothing(scheduler: Scheduler, notifications: Notifications) -> None:
    await notifications.connection.execute("INSERT INTO notifyqueue.tenants (id) VALUES ('other')")
    theirs = {"tenant_id": "'other'", "next_attempt_at": "now() - interval '9 hours'"}
    await fill(notifications, 5, **theirs)
    await fill(notifications, 5, **theirs | {"expiries": "2"})
    await fill(notifications, 5, **theirs | LATER)
    await fill(notifications, 5, **theirs | PROCESSING)
    await fill(notifications, 5, **theirs | waits())
    await fill(notifications, 1)
    found = await lane(scheduler)
    counts = [found[name] for name in ("due", "scheduled", "waiting", "processing")]
    assert counts == [(1, False), NOTHING, NOTHING, NOTHING]
    assert HOUR <= found["lag"] < 9 * HOUR


@pytest.mark.parametrize("expiries", ["0", "2"], ids=["others", "suspects"])
async def test_where_others_fill_what_is_looked_at_nothing_is_said_of_the_lag(
    scheduler: Scheduler, notifications: Notifications, expiries: str
) -> None:
    await notifications.connection.execute("INSERT INTO notifyqueue.tenants (id) VALUES ('other')")
    earlier = {"next_attempt_at": "now() - interval '9 hours'", "expiries": expiries}
    await fill(notifications, BOUND + 1, **earlier | {"tenant_id": "'other'"})
    await fill(notifications, 1, expiries=expiries)
    (email, *_) = (await stats(scheduler)).lanes
    assert pair(email.due) == (0, True)
    assert not email.HasField("lag")
    await fill(notifications, 1, **earlier | {"next_attempt_at": "now() - interval '10 hours'"})
    (email, sms, _) = (await stats(scheduler)).lanes
    assert pair(email.due) == (1, True)
    assert email.lag.ToTimedelta() >= 10 * HOUR
    assert (sms.HasField("lag"), sms.lag.ToTimedelta()) == (True, timedelta())


async def event(notifications: Notifications, count: int, *, tenant: str = "default", fanned_out: bool = False) -> None:
    await notifications.connection.execute(
        "INSERT INTO notifyqueue.webhook_events (tenant_id, notification_id, status, redrive_count, attempt_count,"
        " channel, labels, occurred_at, fanned_out_at)"
        " SELECT $1, gen_random_uuid(), 'SENT', 0, 1, 'EMAIL', '{}', now(), CASE WHEN $2 THEN now() END"
        " FROM generate_series(1, $3)",
        *(tenant, fanned_out, count),
    )


async def delivery(notifications: Notifications, count: int, *, tenant: str = "default", end: str = "") -> None:
    await notifications.connection.execute(
        "INSERT INTO notifyqueue.webhook_deliveries"
        " (event_id, endpoint_id, tenant_id, delivered_at, given_up_at, give_up_reason)"
        " SELECT gen_random_uuid(), gen_random_uuid(), $1, CASE WHEN $2 = 'delivered' THEN now() END,"
        " CASE WHEN $2 = 'given up' THEN now() END, CASE WHEN $2 = 'given up' THEN 'EXHAUSTED' END"
        " FROM generate_series(1, $3)",
        *(tenant, end, count),
    )


async def test_webhooks_are_counted_by_what_is_still_to_be_done(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    await event(notifications, 2)
    await event(notifications, 4, fanned_out=True)
    await delivery(notifications, 3)
    await delivery(notifications, 5, end="given up")
    await delivery(notifications, 7, end="delivered")
    assert await webhooks(scheduler) == {"unassigned": (2, False), "pending": (3, False), "given_up": (5, False)}


async def test_an_end_is_an_unassigned_event(scheduler: Scheduler, notifications: Notifications) -> None:
    id_ = await notifications.insert("order-1")
    await scheduler.CancelNotification(scheduler_pb2.CancelNotificationRequest(notification_id=str(id_)))
    assert (await webhooks(scheduler))["unassigned"] == (1, False)


async def test_another_tenants_webhooks_count_for_nothing(scheduler: Scheduler, notifications: Notifications) -> None:
    await event(notifications, 2, tenant="other")
    await delivery(notifications, 3, tenant="other")
    await delivery(notifications, 5, tenant="other", end="given up")
    assert await webhooks(scheduler) == {"unassigned": NOTHING, "pending": NOTHING, "given_up": NOTHING}


@pytest.mark.parametrize(("rows", "count"), [(BOUND, (BOUND, False)), (BOUND + 1, (BOUND, True))])
async def test_webhook_counts_are_exact_up_to_their_bound(
    scheduler: Scheduler, notifications: Notifications, rows: int, count: tuple[int, bool]
) -> None:
    await event(notifications, rows)
    await delivery(notifications, rows)
    await delivery(notifications, rows, end="given up")
    assert await webhooks(scheduler) == {"unassigned": count, "pending": count, "given_up": count}


async def test_a_held_notification_is_counted_whoever_holds_it(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    await fill(notifications, 3, **PROCESSING | {"worker_id": f"'{uuid4()}'"})
    await fill(notifications, 3, **PROCESSING | {"lease_expires_at": "now() - interval '1 hour'"})
    assert (await lane(scheduler))["processing"] == (6, False)


ENDS = ("SENT", "FAILED", "DEAD_LETTERED", "CANCELLED", "EXPIRED", "SUPPRESSED")


async def totals(scheduler: Scheduler) -> Mapping[tuple[str, str], tuple[int, bool]]:
    """Those that are not zero."""
    found = await stats(scheduler)
    assert [[Status.Name(total.status)[7:] for total in row.totals] for row in found.lanes] == [list(ENDS)] * 3
    return {
        (notification_pb2.Channel.Name(row.channel)[8:], Status.Name(total.status)[7:]): pair(total.count)
        for row in found.lanes
        for total in row.totals
        if total.count.count or total.count.at_least
    }


async def end(notifications: Notifications, status: str, where: str = "true") -> None:
    reason = {"FAILED": "'MESSAGE_REJECTED'", "DEAD_LETTERED": "'WORKER_LOST'", "SUPPRESSED": "'OPTED_OUT'"}
    await notifications.connection.execute(
        f"UPDATE notifyqueue.notifications SET status = '{status}', finished_at = now(),"
        f" failure_reason = {reason.get(status, 'NULL')} WHERE status = 'PENDING' AND {where}"
    )


async def merge(notifications: Notifications) -> None:
    await notifications.connection.execute(MERGE)


async def test_totals_count_every_end_by_lane_and_way(scheduler: Scheduler, notifications: Notifications) -> None:
    assert await totals(scheduler) == {}
    for number, status in enumerate(ENDS, 1):
        await fill(notifications, number, channel="'SMS'")
        await end(notifications, status)
    await fill(notifications, 9)
    await end(notifications, "SENT")
    await fill(notifications, 1)
    expected = {("SMS", status): (number, False) for number, status in enumerate(ENDS, 1)} | {
        ("EMAIL", "SENT"): (9, False)
    }
    assert await totals(scheduler) == expected


async def test_totals_stay_when_they_are_merged_and_when_the_notifications_have_gone(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    for _ in range(3):
        await fill(notifications, 5)
        await end(notifications, "SENT")
        assert (await totals(scheduler))["EMAIL", "SENT"][0] % 5 == 0
        await merge(notifications)
    await fill(notifications, 5)
    await end(notifications, "SENT")
    await notifications.connection.execute("DELETE FROM notifyqueue.notifications")
    assert await totals(scheduler) == {("EMAIL", "SENT"): (20, False)}


async def test_another_tenants_totals_are_not_told(scheduler: Scheduler, notifications: Notifications) -> None:
    await notifications.connection.execute("INSERT INTO notifyqueue.tenants (id) VALUES ('other')")
    for _ in range(2):  # of what is merged, and of what is not
        await merge(notifications)
        await fill(notifications, 1)
        await fill(notifications, 5, tenant_id="'other'")
        await end(notifications, "CANCELLED")
    assert await totals(scheduler) == {("EMAIL", "CANCELLED"): (2, False)}


async def test_totals_that_nobody_has_merged_for_long_are_a_lower_bound(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    await notifications.connection.execute(
        "INSERT INTO notifyqueue.status_deltas (tenant_id, channel, status, count)"
        f" SELECT 'default', 'EMAIL', 'SENT', 2 FROM generate_series(1, {BOUND + 100})"
    )
    count, at_least = (await totals(scheduler))["EMAIL", "SENT"]
    assert at_least
    assert 2 * BOUND <= count < 2 * (BOUND + 100)
    for _ in range(3):
        await merge(notifications)
    assert await totals(scheduler) == {("EMAIL", "SENT"): (2 * (BOUND + 100), False)}


async def stranded(scheduler: Scheduler) -> list[str]:
    return [notification_pb2.Channel.Name(row.channel)[8:] for row in (await stats(scheduler)).lanes if row.stranded]


async def beat(notifications: Notifications, *channels: str, phase: str = "RUNNING", ago: int = 0) -> None:
    """A worker that serves these, and when it was last seen."""
    none = [0] * len(channels)
    await notifications.connection.execute(
        "INSERT INTO notifyqueue.workers (id, phase, channels, concurrency, in_flight, sent, unsent, heartbeat_at)"
        " VALUES (gen_random_uuid(), $1, $2, $3, $3, $4, $4, now() - make_interval(secs => $5))",
        *(phase, list(channels), none, none, ago),
    )


@pytest.mark.parametrize("what", [waits(), PROCESSING], ids=["what waits at a gate", "what is held past its lease"])
async def test_a_lane_is_stranded_also_while_only_a_worker_can_bring_back_what_is_there(
    scheduler: Scheduler, notifications: Notifications, what: dict[str, str]
) -> None:
    await fill(notifications, 1, **what)
    assert await stranded(scheduler) == ["EMAIL"]
    await beat(notifications, "EMAIL")
    assert await stranded(scheduler) == []


async def test_while_others_have_no_more_than_is_looked_at_of_any_class_a_count_is_exact(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    await notifications.connection.execute("INSERT INTO notifyqueue.tenants (id) VALUES ('other')")
    await fill(notifications, BOUND // 2 + 1, tenant_id="'other'", priority="3")
    await fill(notifications, BOUND // 2 + 1, tenant_id="'other'", priority="2")
    await fill(notifications, 1)
    assert (await lane(scheduler))["due"] == (1, False)


async def test_a_lane_is_stranded_while_something_is_due_and_no_worker_serves_it(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    await fill(notifications, 1, **LATER)
    await fill(notifications, 1, **PROCESSING | {"lease_expires_at": "now() + interval '1 hour'"})
    assert await stranded(scheduler) == []
    await fill(notifications, 1)
    await fill(notifications, 1, channel="'PUSH'", expiries="2")
    assert await stranded(scheduler) == ["EMAIL", "PUSH"]
    await beat(notifications, "SMS", "PUSH")
    assert await stranded(scheduler) == ["EMAIL"]
    await beat(notifications, "EMAIL", ago=20)
    await beat(notifications, "EMAIL", phase="DRAINING")
    await beat(notifications, "EMAIL", phase="DRAINED")
    assert await stranded(scheduler) == ["EMAIL"]
    await beat(notifications, "EMAIL", ago=10)
    assert await stranded(scheduler) == []


async def test_what_is_due_for_another_tenant_strands_no_lane_of_mine(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    await notifications.connection.execute("INSERT INTO notifyqueue.tenants (id) VALUES ('other')")
    await fill(notifications, 1, tenant_id="'other'")
    assert await stranded(scheduler) == []
