"""Between the contract's messages and this service's own types."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from notifyqueue.v1 import notification_pb2, scheduler_pb2
from services.scheduler.addresses import canonical_email
from services.scheduler.listing import Filter
from services.scheduler.notification import HistoryEntry, Notification
from services.scheduler.statistics import Count, LaneStats, WebhookStats
from services.scheduler.validation import MAX_REFERENCE, Draft, Faults

MAX_PAGE = 3 * 1024 * 1024  # of bytes: unless told otherwise, clients refuse an answer of more than 4 MiB

TERMINAL_ENTRIES = {
    "SENT": notification_pb2.TimelineEntry.KIND_SENT,
    "FAILED": notification_pb2.TimelineEntry.KIND_FAILED,
    "DEAD_LETTERED": notification_pb2.TimelineEntry.KIND_DEAD_LETTERED,
    "EXPIRED": notification_pb2.TimelineEntry.KIND_EXPIRED,
    "SUPPRESSED": notification_pb2.TimelineEntry.KIND_SUPPRESSED,
}


def draft(tenant: str, request: scheduler_pb2.ScheduleNotificationRequest) -> Draft:
    email = request.email
    return Draft(
        tenant=tenant,
        idempotency_key=request.idempotency_key,
        recipient=request.WhichOneof("recipient"),
        address=request.address,
        content=request.WhichOneof("content"),
        email={
            "subject": email.subject,
            "text": email.text,
            "html": email.html,
            "sender": email.sender,
            "reply_to": email.reply_to,
            "headers": dict(email.headers),
        },
        priority=request.priority,
        due=_moment(request, "due"),
        expiry=_moment(request, "expiry"),
        at_most_once=request.at_most_once,
        category=request.category,
        reference=request.reference,
        labels=dict(request.labels),
    )


def _moment(request: scheduler_pb2.ScheduleNotificationRequest, group: str) -> datetime | timedelta | None:
    match request.WhichOneof(group):  # type: ignore[call-overload]
        case None:
            return None
        case name:
            value: Timestamp | Duration = getattr(request, name)
            return value.ToDatetime(UTC) if isinstance(value, Timestamp) else value.ToTimedelta()


def filter_(message: notification_pb2.NotificationFilter) -> Filter:
    """Raises RequestInvalid."""
    faults = Faults()
    if message.subscriber:
        faults.add("filter.subscriber", "is not served by this version")
    if message.address and message.channel != notification_pb2.CHANNEL_EMAIL:
        faults.add("filter.channel", "must be CHANNEL_EMAIL where an address is given")
    address = faults.canonical("filter.address", message.address, canonical_email) if message.address else None
    faults.length("filter.reference", message.reference, MAX_REFERENCE)
    faults.raise_any()
    return Filter(
        status=_name(notification_pb2.Notification.Status, message.status),
        channel=_name(notification_pb2.Channel, message.channel),
        address=address,
        reference=message.reference or None,
        created_since=message.created_since.ToDatetime(UTC) if message.HasField("created_since") else None,
        created_before=message.created_before.ToDatetime(UTC) if message.HasField("created_before") else None,
    )


def _name(enum: object, value: int) -> str | None:
    """PENDING for STATUS_PENDING: what the database calls it."""
    return enum.Name(value).partition("_")[2] if value else None  # type: ignore[attr-defined]


def filter_binding(message: notification_pb2.NotificationFilter) -> bytes:
    """What a page token is bound to."""
    return message.SerializeToString(deterministic=True)


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
    yield notification_pb2.TimelineEntry(
        kind=notification_pb2.TimelineEntry.KIND_ACCEPTED, time=timestamp(stored.created_at)
    )
    yield from map(_entry, history)
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


def lane_stats(stats: LaneStats) -> scheduler_pb2.LaneStats:
    return scheduler_pb2.LaneStats(
        channel=notification_pb2.Channel.Value(f"CHANNEL_{stats.channel}"),
        due=_count(stats.due),
        scheduled=_count(stats.scheduled),
        processing=_count(stats.processing),
        lag=duration(stats.lag),
    )


def webhook_stats(stats: WebhookStats) -> scheduler_pb2.WebhookStats:
    return scheduler_pb2.WebhookStats(
        unassigned=_count(stats.unassigned), pending=_count(stats.pending), given_up=_count(stats.given_up)
    )


def stats(lanes: Sequence[LaneStats], webhooks: WebhookStats) -> scheduler_pb2.GetQueueStatsResponse:
    return scheduler_pb2.GetQueueStatsResponse(lanes=map(lane_stats, lanes), webhooks=webhook_stats(webhooks))


def _count(count: Count) -> scheduler_pb2.BoundedCount:
    return scheduler_pb2.BoundedCount(count=count.count, at_least=count.at_least)


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
