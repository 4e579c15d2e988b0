"""Between the contract's messages and this service's own types."""

import re
from datetime import UTC, datetime
from uuid import UUID

from google.protobuf.timestamp_pb2 import Timestamp

from notifyqueue.v1 import dispatcher_pb2, process_pb2
from services.dispatcher.dispatch import Status
from services.dispatcher.endpoints import Draft, Endpoint
from shared.errors import RequestInvalid, Violation

# Python's UUID also reads braces, URNs and hyphens in any place.
CANONICAL_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
LONGEST_DRAIN = 3600.0


def draft(request: dispatcher_pb2.CreateEndpointRequest) -> Draft:
    return Draft(request.url, tuple(request.event_types), request.description)


def endpoint_id(request: dispatcher_pb2.DeleteEndpointRequest) -> UUID:
    """Raises RequestInvalid."""
    if not request.endpoint_id:
        raise RequestInvalid([Violation("endpoint_id", "is required")])
    if not CANONICAL_ID.fullmatch(request.endpoint_id):
        raise RequestInvalid([Violation("endpoint_id", "is not a UUID")])
    return UUID(request.endpoint_id)


def drain_timeout(request: dispatcher_pb2.DrainDispatcherRequest, default: float) -> float:
    """Seconds. Raises RequestInvalid."""
    if not request.HasField("timeout"):
        return default
    seconds = request.timeout.ToNanoseconds() / 1e9
    if not 0 <= seconds <= LONGEST_DRAIN:
        raise RequestInvalid([Violation("timeout", "must be between nothing and one hour")])
    return seconds


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
