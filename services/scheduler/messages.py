"""Between the contract's messages and this service's own types."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2

from notifyqueue.v1 import errors_pb2, notification_pb2, scheduler_pb2
from services.scheduler import redrives
from services.scheduler.addresses import CANONICAL
from services.scheduler.bulk import Order, Report, limit_of
from services.scheduler.changes import Wish
from services.scheduler.contents import CHANNELS, Parts
from services.scheduler.faults import Faults
from services.scheduler.judging import Accepted
from services.scheduler.listing import Filter
from services.scheduler.notification import HistoryEntry, Notification
from services.scheduler.statistics import Count
from services.scheduler.templates import Use
from services.scheduler.validation import MAX_REASON, MAX_REFERENCE, TEMPLATE, Draft, subscriber_name
from shared.errors import ApiError

MAX_PAGE = 3 * 1024 * 1024  # of bytes: unless told otherwise, clients refuse an answer of more than 4 MiB

TERMINAL_ENTRIES = {
    "SENT": notification_pb2.TimelineEntry.KIND_SENT,
    "FAILED": notification_pb2.TimelineEntry.KIND_FAILED,
    "DEAD_LETTERED": notification_pb2.TimelineEntry.KIND_DEAD_LETTERED,
    "EXPIRED": notification_pb2.TimelineEntry.KIND_EXPIRED,
    "SUPPRESSED": notification_pb2.TimelineEntry.KIND_SUPPRESSED,
}


def draft(tenant: str, request: scheduler_pb2.ScheduleNotificationRequest) -> Draft:
    content = request.WhichOneof("content")
    return Draft(
        tenant=tenant,
        idempotency_key=request.idempotency_key,
        recipient=request.WhichOneof("recipient"),
        address=request.address,
        content=content,
        parts=parts(getattr(request, content)) if content in CHANNELS else {},
        template=_use(request.template) if content == TEMPLATE else None,
        subscriber=request.subscriber,
        priority=request.priority,
        due=_moment(request, "due"),
        expiry=_moment(request, "expiry"),
        at_most_once=request.at_most_once,
        category=request.category,
        reference=request.reference,
        labels=dict(request.labels),
    )


def _use(content: notification_pb2.TemplateContent) -> Use:
    return Use(content.template, content.version, channel(content.channel), content.locale, content.variables_json)


def parts(content: Message) -> Parts:
    """Every field: a text, or a map of texts."""
    values = ((field.name, getattr(content, field.name)) for field in content.DESCRIPTOR.fields)
    return {name: value if isinstance(value, str) else dict(value) for name, value in values}


def _moment(request: Message, group: str) -> datetime | timedelta | None:
    match request.WhichOneof(group):
        case None:
            return None
        case name:
            value: Timestamp | Duration = getattr(request, name)
            return value.ToDatetime(UTC) if isinstance(value, Timestamp) else value.ToTimedelta()


def wish(request: scheduler_pb2.RescheduleNotificationRequest) -> tuple[Wish, str]:
    """What to change, and why. Raises RequestInvalid."""
    faults, found = Faults(), Wish(_moment(request, "due"), request.priority or None)
    if found == Wish(None, None):
        faults.add("due", "or priority is required")
    faults.delay(found.due)
    faults.length("reason", request.reason, MAX_REASON)
    faults.raise_any()
    return found, request.reason


def bulk_order(request: scheduler_pb2.BulkCancelNotificationsRequest) -> tuple[Order, str]:
    """What to cancel, and why. Raises RequestInvalid."""
    faults = Faults()
    found = _filter(faults, request.filter)
    limit = limit_of(faults, found, request.limit)
    faults.length("reason", request.reason, MAX_REASON)
    faults.raise_any()
    return Order(found, limit, request.dry_run), request.reason


def bulk_report(report: Report, next_page_token: str) -> scheduler_pb2.BulkCancelNotificationsResponse:
    return scheduler_pb2.BulkCancelNotificationsResponse(
        cancelled=report.cancelled, remaining=bounded(report.remaining), next_page_token=next_page_token
    )


def redrive_order(request: scheduler_pb2.BulkRedriveNotificationsRequest) -> tuple[redrives.Order, str]:
    """What to redrive, and why. Raises RequestInvalid."""
    faults = Faults()
    filter_ = _filter(faults, request.filter)
    spread_over = request.spread_over.ToTimedelta()
    order = redrives.order_of(faults, filter_, request.limit, spread_over, dry_run=request.dry_run)
    faults.length("reason", request.reason, MAX_REASON)
    faults.raise_any()
    return order, request.reason


def redrive_report(report: redrives.Report, next_page_token: str) -> scheduler_pb2.BulkRedriveNotificationsResponse:
    return scheduler_pb2.BulkRedriveNotificationsResponse(
        redriven=report.redriven,
        remaining=bounded(report.remaining),
        passed_over=report.passed_over,
        skipped=report.skipped,
        next_page_token=next_page_token,
    )


def bounded(count: Count) -> scheduler_pb2.BoundedCount:
    return scheduler_pb2.BoundedCount(count=count.count, at_least=count.at_least)


def batch_result(answer: Accepted | ApiError) -> scheduler_pb2.BatchResult:
    if isinstance(answer, ApiError):
        return scheduler_pb2.BatchResult(refused=_refused(answer))
    return scheduler_pb2.BatchResult(
        accepted=scheduler_pb2.BatchAccepted(notification_id=str(answer.notification.id), replayed=answer.replayed)
    )


def _refused(error: ApiError) -> scheduler_pb2.BatchRefused:
    number, _ = error.code.value
    message = scheduler_pb2.BatchRefused(
        code=number,
        reason=errors_pb2.ErrorReason.Value(f"ERROR_REASON_{error.reason}"),
        message=error.message,
        metadata=error.metadata,
    )
    for detail in error.details():
        if isinstance(detail, error_details_pb2.BadRequest):
            for wrong in detail.field_violations:
                message.violations.add(field=wrong.field, description=wrong.description)
        elif isinstance(detail, error_details_pb2.RetryInfo):
            message.retry_delay.CopyFrom(detail.retry_delay)
    return message


def filter_(message: notification_pb2.NotificationFilter) -> Filter:
    """Raises RequestInvalid."""
    faults = Faults()
    found = _filter(faults, message)
    faults.raise_any()
    return found


def _filter(faults: Faults, message: notification_pb2.NotificationFilter) -> Filter:
    """A national telephone number still lacks its country."""
    subscriber_name(faults, "filter.subscriber", message.subscriber, required=False)
    asked = channel(message.channel)
    address = message.address or None
    if address and asked:
        address = faults.canonical("filter.address", address, CANONICAL[asked])
    elif address:
        faults.add("filter.channel", "is required where an address is given")
    faults.length("filter.reference", message.reference, MAX_REFERENCE)
    return Filter(
        status=_name(notification_pb2.Notification.Status, message.status),
        channel=asked,
        address=address,
        reference=message.reference or None,
        subscriber=message.subscriber or None,
        created_since=message.created_since.ToDatetime(UTC) if message.HasField("created_since") else None,
        created_before=message.created_before.ToDatetime(UTC) if message.HasField("created_before") else None,
    )


def channel(value: int) -> str | None:
    """EMAIL for CHANNEL_EMAIL; None where it is not said."""
    return _name(notification_pb2.Channel, value)


def _name(enum: object, value: int) -> str | None:
    """PENDING for STATUS_PENDING: what the database calls it."""
    return enum.Name(value).partition("_")[2] if value else None  # type: ignore[attr-defined]


def filter_binding(message: notification_pb2.NotificationFilter) -> bytes:
    """What a page token is bound to."""
    return message.SerializeToString(deterministic=True)


def bulk_binding(
    request: scheduler_pb2.BulkCancelNotificationsRequest | scheduler_pb2.BulkRedriveNotificationsRequest,
) -> bytes:
    """Likewise: where a count stopped, nothing has been done yet."""
    return bytes([request.dry_run]) + filter_binding(request.filter)


def notifications(rows: Iterable[Notification]) -> list[notification_pb2.Notification]:
    """The first of them, as many as a client takes in one answer: at least one, which is small by its bounds."""
    found: list[notification_pb2.Notification] = []
    size = 0
    for row in rows:
        message = notification(row)
        size += message.ByteSize()
        if found and size > MAX_PAGE:
            break
        found.append(message)
    return found


def notification(stored: Notification, timeline: Iterable[HistoryEntry] | None = None) -> notification_pb2.Notification:
    message = notification_pb2.Notification(
        notification_id=str(stored.id),
        idempotency_key=stored.idempotency_key,
        channel=notification_pb2.Channel.Value(f"CHANNEL_{stored.channel}"),
        address=stored.address,
        priority=stored.priority,  # type: ignore[arg-type]
        status=notification_pb2.Notification.Status.Value(f"STATUS_{stored.status}"),
        provider_code=stored.provider_code or "",
        provider_message_id=stored.provider_message_id or "",
        attempt_count=stored.attempt_count,
        max_attempts=stored.max_attempts,
        at_most_once=stored.at_most_once,
        category=stored.category,
        reference=stored.reference or "",
        labels=dict(stored.labels),
        template=stored.template or "",
        template_version=stored.template_version or 0,
        subscriber=stored.subscriber or "",
        redrive_count=stored.redrive_count,
        revision=stored.revision,
        due_time=timestamp(stored.due_at),
        create_time=timestamp(stored.created_at),
    )
    if stored.failure_reason:
        message.failure_reason = notification_pb2.FailureReason.Value(f"FAILURE_REASON_{stored.failure_reason}")
    if stored.status == "PENDING":
        message.next_attempt_time.CopyFrom(timestamp(stored.next_attempt_at))
    if stored.expire_at:
        message.expire_time.CopyFrom(timestamp(stored.expire_at))
    if stored.finished_at:
        message.finish_time.CopyFrom(timestamp(stored.finished_at))
    if timeline is not None:
        message.timeline.extend(_timeline(stored, timeline))
    return message


def _timeline(stored: Notification, history: Iterable[HistoryEntry]) -> Iterable[notification_pb2.TimelineEntry]:
    entries = list(history)
    earlier = [entry for entry in entries if entry.happened_at < stored.created_at]  # what it found in its lane
    yield from map(_entry, earlier)
    yield notification_pb2.TimelineEntry(
        kind=notification_pb2.TimelineEntry.KIND_ACCEPTED, time=timestamp(stored.created_at)
    )
    yield from map(_entry, entries[len(earlier) :])
    if stored.finished_at and stored.status in TERMINAL_ENTRIES:
        yield notification_pb2.TimelineEntry(
            kind=TERMINAL_ENTRIES[stored.status],
            time=timestamp(stored.finished_at),
            attempt=stored.attempt_count,
            provider_code=stored.provider_code or "",
        )


def _entry(entry: HistoryEntry) -> notification_pb2.TimelineEntry:
    return notification_pb2.TimelineEntry(
        kind=notification_pb2.TimelineEntry.Kind.Value(f"KIND_{entry.kind}"),
        time=timestamp(entry.happened_at),
        attempt=entry.attempt,
        worker_id=str(entry.worker_id or ""),
        provider_code=entry.provider_code or "",
        retry_delay=None if entry.retry_delay is None else duration(entry.retry_delay),
        actor=entry.actor,
        note=entry.note,
    )


def timestamp(time: datetime) -> Timestamp:
    message = Timestamp()
    message.FromDatetime(time)
    return message


def duration(span: timedelta) -> Duration:
    message = Duration()
    message.FromTimedelta(span)
    return message


def chosen(message: Message, group: str) -> tuple[str | None, str]:
    """The name and value of what was set of a oneof of strings."""
    name = message.WhichOneof(group)
    return name, getattr(message, name) if name else ""
