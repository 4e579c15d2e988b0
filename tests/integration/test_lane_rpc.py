"""Lanes, as an operator of the platform pauses and watches them, and as a notification's timeline tells of them."""

from datetime import timedelta
from uuid import uuid4

import grpc
import pytest

from notifyqueue.v1 import notification_pb2, process_pb2, scheduler_pb2
from notifyqueue.v1.scheduler_pb2_grpc import SchedulerStub
from services.worker.store import LaneLoad, Store
from shared.database import Database
from tests.conftest import login
from tests.integration.conftest import StartWorker
from tests.notifications import Notifications
from tests.providers import ScriptedProvider
from tests.waiting import eventually

EMAIL = notification_pb2.CHANNEL_EMAIL
SPAN = timedelta(minutes=1)
Kind = notification_pb2.TimelineEntry.Kind


async def pause(scheduler: SchedulerStub, reason: str = "their maintenance") -> scheduler_pb2.Lane:
    request = scheduler_pb2.PauseLaneRequest(channel=EMAIL, reason=reason)
    return (await scheduler.PauseLane(request)).lane


async def resume(scheduler: SchedulerStub) -> scheduler_pb2.Lane:
    return (await scheduler.ResumeLane(scheduler_pb2.ResumeLaneRequest(channel=EMAIL, reason="over"))).lane


async def stats(scheduler: SchedulerStub) -> scheduler_pb2.GetQueueStatsResponse:
    return await scheduler.GetQueueStats(scheduler_pb2.GetQueueStatsRequest())


async def timeline(scheduler: SchedulerStub, key: str) -> list[notification_pb2.TimelineEntry]:
    request = scheduler_pb2.GetNotificationRequest(idempotency_key=key, include_timeline=True)
    return list((await scheduler.GetNotification(request)).notification.timeline)


def kinds(entries: list[notification_pb2.TimelineEntry]) -> list[str]:
    return [Kind.Name(entry.kind).removeprefix("KIND_") for entry in entries]


async def test_a_pause_is_stored_with_who_and_why_and_the_first_is_kept(
    scheduler: SchedulerStub, notifications: Notifications
) -> None:
    paused = await pause(scheduler)
    assert (paused.channel, paused.pause.reason, paused.pause.actor) == (EMAIL, "their maintenance", "anonymous")
    assert await pause(scheduler, "mine") == paused
    shown = {lane.channel: lane.lane for lane in (await stats(scheduler)).lanes}
    assert shown[EMAIL] == paused
    assert not shown[notification_pb2.CHANNEL_SMS].HasField("pause")
    assert not (await resume(scheduler)).HasField("pause")
    await resume(scheduler)
    rows = await notifications.connection.fetch("SELECT kind, actor, note FROM notifyqueue.lane_history ORDER BY id")
    assert [tuple(row) for row in rows] == [
        ("LANE_PAUSED", "anonymous", "their maintenance"),
        ("LANE_RESUMED", "anonymous", "over"),
    ]


async def test_once_a_pause_has_answered_no_worker_claims_and_after_the_resume_it_goes_on_at_once(
    scheduler: SchedulerStub, notifications: Notifications, start_worker: StartWorker, database_url: str
) -> None:
    provider = ScriptedProvider()
    await start_worker(database_url, provider, poll_interval=3600)
    await pause(scheduler)
    await notifications.insert("waits")
    await notifications.connection.execute("NOTIFY notifyqueue_lane_email")
    await notifications.insert("other", channel="SMS")

    async def told() -> bool:
        rows = await notifications.connection.fetch(
            "SELECT FROM notifyqueue.workers AS w, notifyqueue.lanes AS l WHERE w.heartbeat_at > l.paused_at"
        )
        return bool(rows)

    await eventually(told)
    assert not provider.seen
    await resume(scheduler)
    await eventually(lambda: len(provider.seen) == 1)


async def test_a_timeline_tells_why_it_waited(
    scheduler: SchedulerStub, notifications: Notifications, start_worker: StartWorker, database_url: str
) -> None:
    await pause(scheduler)
    await notifications.insert("came-later")
    async with Database(login(database_url, "worker"), name="test") as database:
        store = Store(database)
        await store.open_breaker("EMAIL", 0, "451", SPAN, uuid4())
        await store.close_breaker("EMAIL", 1, uuid4())
    await resume(scheduler)
    await start_worker(database_url, ScriptedProvider())

    async def sent() -> bool:
        return kinds(await timeline(scheduler, "came-later"))[-1] == "SENT"

    await eventually(sent)
    await pause(scheduler, "after it had ended")
    entries = await timeline(scheduler, "came-later")
    assert kinds(entries) == [
        "LANE_PAUSED",
        "ACCEPTED",
        "BREAKER_OPENED",
        "BREAKER_CLOSED",
        "LANE_RESUMED",
        "SENT",
    ]
    assert (entries[0].note, entries[0].actor) == ("their maintenance", "")  # which key it was is not a tenant's
    assert entries[2].provider_code == "451"


async def test_a_timeline_leaves_out_what_was_over_before_it_came(
    scheduler: SchedulerStub, notifications: Notifications
) -> None:
    await pause(scheduler)
    await resume(scheduler)
    await notifications.insert("new")
    assert kinds(await timeline(scheduler, "new")) == ["ACCEPTED"]


async def test_stats_show_the_workers_that_live(
    scheduler: SchedulerStub, notifications: Notifications, database_url: str
) -> None:
    alive, gone = uuid4(), uuid4()
    async with Database(login(database_url, "worker"), name="test") as database:
        for worker_id in (alive, gone):
            await Store(database).beat(worker_id, "RUNNING", [LaneLoad("EMAIL", 64, 3, 10, 1)])
    await notifications.connection.execute(
        "UPDATE notifyqueue.workers SET heartbeat_at = now() - interval '1 minute' WHERE id = $1", gone
    )
    (worker,) = (await stats(scheduler)).workers
    assert (worker.worker_id, worker.phase) == (str(alive), process_pb2.PROCESS_PHASE_RUNNING)
    (lane,) = worker.lanes
    assert (lane.channel, lane.concurrency, lane.in_flight, lane.sent, lane.unsent) == (EMAIL, 64, 3, 10, 1)


async def test_stats_show_an_open_breaker_and_a_hold(
    scheduler: SchedulerStub, notifications: Notifications, database_url: str
) -> None:
    async with Database(login(database_url, "worker"), name="test") as database:
        await Store(database).open_breaker("SMS", 0, "503", SPAN, uuid4())
        await Store(database).hold_lane("PUSH", SPAN)
    shown = {lane.channel: lane.lane for lane in (await stats(scheduler)).lanes}
    breaker = shown[notification_pb2.CHANNEL_SMS].open_breaker
    assert breaker.cause == "503"
    assert breaker.probe_time.ToDatetime() > breaker.time.ToDatetime()
    assert shown[notification_pb2.CHANNEL_PUSH].HasField("hold_time")
    assert not shown[EMAIL].HasField("hold_time")


async def test_a_resume_ends_a_hold_and_calls_for_a_probe(
    scheduler: SchedulerStub, notifications: Notifications, database_url: str
) -> None:
    async with Database(login(database_url, "worker"), name="test") as database:
        await Store(database).open_breaker("EMAIL", 0, "503", SPAN, uuid4())
        await Store(database).hold_lane("EMAIL", SPAN)
    resumed = await resume(scheduler)
    assert not resumed.HasField("hold_time")
    assert resumed.HasField("open_breaker")  # that is for a probe to say
    due = await notifications.connection.fetchval(
        "SELECT probe_at <= clock_timestamp() FROM notifyqueue.lanes WHERE channel = 'EMAIL'"
    )
    assert due
    await resume(scheduler)
    rows = await notifications.connection.fetch("SELECT kind FROM notifyqueue.lane_history ORDER BY id")
    assert [row["kind"] for row in rows] == ["BREAKER_OPENED", "LANE_RESUMED"]


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        (scheduler_pb2.PauseLaneRequest(reason="why"), "channel"),
        (scheduler_pb2.PauseLaneRequest(channel=EMAIL), "reason"),
        (scheduler_pb2.PauseLaneRequest(channel=EMAIL, reason="x" * 256), "reason"),
    ],
)
async def test_a_bad_pause_is_refused_by_its_field(
    scheduler: SchedulerStub, notifications: Notifications, request_: scheduler_pb2.PauseLaneRequest, fields: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match=f"{fields}: ") as caught:
        await scheduler.PauseLane(request_)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert not await notifications.connection.fetch("SELECT FROM notifyqueue.lane_history")
