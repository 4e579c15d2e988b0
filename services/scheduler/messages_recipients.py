"""Between the contract's messages about recipients and this service's own types."""

from datetime import UTC

from notifyqueue.v1 import notification_pb2, recipients_pb2
from services.scheduler import subscribers, suppressions
from services.scheduler.erasure import Report as Erasure
from services.scheduler.messages import bounded, channel, chosen, timestamp
from services.scheduler.statistics import Count
from services.scheduler.suppressions import Ban, Filter, Order, Report, Suppression

PREFIX = "SUPPRESSION_SOURCE_"


def ban(request: recipients_pb2.PutSuppressionRequest | recipients_pb2.DeleteSuppressionRequest) -> Ban:
    """Raises RequestInvalid."""
    named, source = chosen(request, "recipient"), _source(request.source)
    return suppressions.check(channel(request.channel), *named, request.category, source)


def filter_(request: recipients_pb2.ListSuppressionsRequest) -> Filter:
    """Raises RequestInvalid."""
    asked = (channel(request.channel), request.address, request.category, _source(request.source), request.subscriber)
    return suppressions.check_filter(*asked)


def filter_binding(request: recipients_pb2.ListSuppressionsRequest) -> bytes:
    """What a page token is bound to."""
    bound = recipients_pb2.ListSuppressionsRequest(
        channel=request.channel,
        address=request.address,
        category=request.category,
        source=request.source,
        subscriber=request.subscriber,
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
        channel=notification_pb2.Channel.Value(f"CHANNEL_{stored.channel or 'UNSPECIFIED'}"),
        address="" if stored.erased else stored.address or "",
        subscriber=stored.subscriber or "",
        erased=stored.erased,
        category=stored.category,
        source=recipients_pb2.SuppressionSource.Value(f"{PREFIX}{stored.source}"),
        code=stored.code or "",
        create_time=timestamp(stored.created_at),
        actor=stored.actor,
    )


def subscriber_draft(request: recipients_pb2.PutSubscriberRequest) -> subscribers.Draft:
    """Raises RequestInvalid."""
    return subscribers.check(
        request.subscriber, request.email, request.phone, request.push, request.locale, request.time_zone
    )


def place(request: recipients_pb2.ListSubscribersRequest) -> subscribers.Place | None:
    """Raises RequestInvalid."""
    return subscribers.check_place(channel(request.channel), request.address)


def place_binding(request: recipients_pb2.ListSubscribersRequest) -> bytes:
    """What a page token is bound to."""
    bound = recipients_pb2.ListSubscribersRequest(channel=request.channel, address=request.address)
    return bound.SerializeToString(deterministic=True)


def subscriber(stored: subscribers.Subscriber) -> recipients_pb2.Subscriber:
    return recipients_pb2.Subscriber(
        subscriber=stored.name,
        email=stored.email or "",
        phone=stored.phone or "",
        push=stored.push or "",
        locale=stored.locale or "",
        time_zone=stored.time_zone or "",
        create_time=timestamp(stored.created_at),
        update_time=timestamp(stored.updated_at),
    )


def erasure(report: Erasure) -> recipients_pb2.DeleteSubscriberResponse:
    return recipients_pb2.DeleteSubscriberResponse(
        erased=report.erased, cancelled=report.cancelled, in_flight=report.in_flight, more=report.more
    )


def _source(value: "recipients_pb2.SuppressionSource.ValueType") -> str | None:
    return recipients_pb2.SuppressionSource.Name(value).removeprefix(PREFIX) if value else None
