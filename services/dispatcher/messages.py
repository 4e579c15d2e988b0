"""Between the contract's messages and this service's own types."""

from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp

from notifyqueue.v1 import dispatcher_pb2, process_pb2
from services.dispatcher.dispatch import Status
from services.dispatcher.endpoints import Draft, Endpoint


def draft(request: dispatcher_pb2.CreateEndpointRequest) -> Draft:
    return Draft(request.url, tuple(request.event_types), request.description)


def endpoint(stored: Endpoint) -> dispatcher_pb2.Endpoint:
    return dispatcher_pb2.Endpoint(
        endpoint_id=str(stored.id),
        url=stored.url,
        event_types=stored.event_types,
        description=stored.description,
        enabled=stored.enabled,
        disabled_reason=stored.disabled_reason or "",
        create_time=_timestamp(stored.created_at),
    )


def dispatcher(status: Status) -> dispatcher_pb2.DispatcherStatus:
    return dispatcher_pb2.DispatcherStatus(
        dispatcher_id=str(status.dispatcher_id),
        phase=process_pb2.ProcessPhase.Value(f"PROCESS_PHASE_{status.phase}"),
        start_time=_timestamp(status.started_at),
        concurrency=status.concurrency,
        in_flight=status.in_flight,
        delivered=status.delivered,
        failed=status.failed,
    )


def _timestamp(time: datetime) -> Timestamp:
    message = Timestamp()
    message.FromDatetime(time.astimezone(UTC))
    return message
