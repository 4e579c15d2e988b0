"""Between the contract's messages about recipients and this service's own types."""

from datetime import UTC

from notifyqueue.v1 import notification_pb2, recipients_pb2
from services.scheduler import suppressions
from services.scheduler.messages import bounded, channel, timestamp
from services.scheduler.statistics import Count
from services.scheduler.suppressions import Ban, Filter, Order, Report, Suppression

PREFIX = "SUPPRESSION_SOURCE_"


def ban(request: recipients_pb2.PutSuppressionRequest | recipients_pb2.DeleteSuppressionRequest) -> Ban:
    """Raises RequestInvalid."""
    return suppressions.check(channel(request.channel), request.address, request.category, _source(request.source))


def filter_(request: recipients_pb2.ListSuppressionsRequest) -> Filter:
    """Raises RequestInvalid."""
    asked = (channel(request.channel), request.address, request.category, _source(request.source))
    return suppressions.check_filter(*asked)


def filter_binding(request: recipients_pb2.ListSuppressionsRequest) -> bytes:
    """What a page token is bound to."""
    bound = recipients_pb2.ListSuppressionsRequest(
        channel=request.channel, address=request.address, category=request.category, source=request.source
    )
    return bound.SerializeToString(deterministic=True)


def order(request: recipients_pb2.BulkDeleteSuppressionsRequest) -> Order:
    """Raises RequestInvalid."""
    since = request.since.ToDatetime(UTC) if request.HasField("since") else None
    return suppressions.check_order(_source(request.source), since, request.limit, dry_run=request.dry_run)


def order_binding(request: recipients_pb2.BulkDeleteSuppressionsRequest) -> bytes:
    """What a page token is bound to."""
    bound = recipients_pb2.BulkDeleteSuppressionsRequest(source=request.source, since=request.since)
    return bound.SerializeToString(deterministic=True)


def report(found: Report, next_page_token: str) -> recipients_pb2.BulkDeleteSuppressionsResponse:
    return recipients_pb2.BulkDeleteSuppressionsResponse(
        deleted=found.deleted, remaining=bounded(found.remaining), next_page_token=next_page_token
    )


def put(stored: Suppression, in_flight: Count, *, unchanged: bool) -> recipients_pb2.PutSuppressionResponse:
    return recipients_pb2.PutSuppressionResponse(
        suppression=suppression(stored), unchanged=unchanged, in_flight=bounded(in_flight)
    )


def suppression(stored: Suppression) -> recipients_pb2.Suppression:
    return recipients_pb2.Suppression(
        suppression_id=str(stored.id),
        channel=notification_pb2.Channel.Value(f"CHANNEL_{stored.channel}"),
        address=stored.address,
        category=stored.category,
        source=recipients_pb2.SuppressionSource.Value(f"{PREFIX}{stored.source}"),
        code=stored.code or "",
        create_time=timestamp(stored.created_at),
        actor=stored.actor,
    )


def _source(value: "recipients_pb2.SuppressionSource.ValueType") -> str | None:
    return recipients_pb2.SuppressionSource.Name(value).removeprefix(PREFIX) if value else None
