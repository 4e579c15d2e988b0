"""Between the contract's messages and the worker's own types."""

from google.protobuf.timestamp_pb2 import Timestamp

from notifyqueue.v1 import notification_pb2, process_pb2, worker_pb2
from services.worker.lane import Lane
from services.worker.worker import Worker


def status(worker: Worker) -> worker_pb2.WorkerStatus:
    started = Timestamp()
    started.FromDatetime(worker.started_at)
    return worker_pb2.WorkerStatus(
        worker_id=str(worker.worker_id),
        phase=process_pb2.ProcessPhase.Value(f"PROCESS_PHASE_{worker.phase}"),
        start_time=started,
        lanes=map(_lane, worker.lanes.values()),
    )


def _lane(lane: Lane) -> worker_pb2.LaneStatus:
    return worker_pb2.LaneStatus(
        channel=notification_pb2.Channel.Value(f"CHANNEL_{lane.settings.channel}"),
        provider=lane.provider.name,
        concurrency=lane.concurrency,
        in_flight=lane.in_flight,
        sent=lane.totals.sent,
        unsent=lane.totals.unsent,
        claims_lost=lane.totals.claims_lost,
    )
