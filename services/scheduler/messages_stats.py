"""Between the contract's messages and how lanes, workers and webhooks stand."""

from collections.abc import Iterable, Sequence

from notifyqueue.v1 import notification_pb2, process_pb2, scheduler_pb2
from services.scheduler.lanes import Lane, LiveLane, LiveWorker
from services.scheduler.messages import duration, timestamp
from services.scheduler.statistics import ENDS, Count, LaneStats, Totals, WebhookStats

NONE = Count(0, at_least=False)


def stats(
    lane_stats: Iterable[LaneStats],
    lanes: Iterable[Lane],
    totals: Totals,
    webhooks: WebhookStats,
    workers: Sequence[LiveWorker] | None,
) -> scheduler_pb2.GetQueueStatsResponse:
    """`workers` None: the caller is a tenant, who is not told who works, nor who paused a lane."""
    by_channel = {lane.channel: lane for lane in lanes}
    return scheduler_pb2.GetQueueStatsResponse(
        lanes=[
            _stats(found, lane(by_channel[found.channel], actor=workers is not None), totals) for found in lane_stats
        ],
        webhooks=scheduler_pb2.WebhookStats(
            unassigned=_count(webhooks.unassigned),
            pending=_count(webhooks.pending),
            given_up=_count(webhooks.given_up),
        ),
        workers=map(_worker, workers or ()),
    )


def lane(found: Lane, *, actor: bool = True) -> scheduler_pb2.Lane:
    message = scheduler_pb2.Lane(channel=_channel(found.channel))
    if found.pause:
        message.pause.time.CopyFrom(timestamp(found.pause.paused_at))
        message.pause.reason = found.pause.reason
        message.pause.actor = found.pause.actor if actor else ""
    if found.open_breaker:
        message.open_breaker.time.CopyFrom(timestamp(found.open_breaker.opened_at))
        message.open_breaker.cause = found.open_breaker.cause
        message.open_breaker.probe_time.CopyFrom(timestamp(found.open_breaker.probe_at))
    if found.held_until:
        message.hold_time.CopyFrom(timestamp(found.held_until))
    return message


def _stats(found: LaneStats, lane: scheduler_pb2.Lane, totals: Totals) -> scheduler_pb2.LaneStats:
    return scheduler_pb2.LaneStats(
        channel=_channel(found.channel),
        due=_count(found.due),
        scheduled=_count(found.scheduled),
        waiting=_count(found.waiting),
        processing=_count(found.processing),
        lag=None if found.lag is None else duration(found.lag),
        lane=lane,
        stranded=found.stranded,
        totals=[_total(status, totals.get((found.channel, status), NONE)) for status in ENDS],
    )


def _total(status: str, count: Count) -> scheduler_pb2.StatusTotal:
    return scheduler_pb2.StatusTotal(
        status=notification_pb2.Notification.Status.Value(f"STATUS_{status}"), count=_count(count)
    )


def _count(count: Count) -> scheduler_pb2.BoundedCount:
    return scheduler_pb2.BoundedCount(count=count.count, at_least=count.at_least)


def _worker(worker: LiveWorker) -> scheduler_pb2.LiveWorker:
    return scheduler_pb2.LiveWorker(
        worker_id=str(worker.id),
        phase=process_pb2.ProcessPhase.Value(f"PROCESS_PHASE_{worker.phase}"),
        start_time=timestamp(worker.started_at),
        heartbeat_time=timestamp(worker.heartbeat_at),
        lanes=map(_live_lane, worker.lanes),
    )


def _live_lane(lane: LiveLane) -> scheduler_pb2.LiveLane:
    return scheduler_pb2.LiveLane(
        channel=_channel(lane.channel),
        concurrency=lane.concurrency,
        in_flight=lane.in_flight,
        sent=lane.sent,
        unsent=lane.unsent,
    )


def _channel(name: str) -> notification_pb2.Channel.ValueType:
    return notification_pb2.Channel.Value(f"CHANNEL_{name}")
