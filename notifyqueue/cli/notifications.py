"""Commands about notifications that were accepted: get, watch, list, cancel, reschedule."""

from collections.abc import Iterator, Mapping
from contextlib import aclosing, contextmanager
from datetime import datetime, timedelta
from typing import Annotated, Literal
from uuid import UUID

import typer

from notifyqueue import Channel, Notification, NotificationFilter, Priority
from notifyqueue.cli import exits
from notifyqueue.cli.output import enum_name, local, plain, span
from notifyqueue.cli.session import Session, command
from notifyqueue.cli.values import to_span, to_time, to_value
from notifyqueue.client import Key
from notifyqueue.errors import ResourceNotFound
from notifyqueue.times import to_timestamp
from notifyqueue.v1.notification_pb2 import TimelineEntry

MAX_PAGE = 1_000

TIMES: Mapping[str, Literal["create_time", "due_time", "next_attempt_time", "expire_time", "finish_time"]] = {
    "accepted": "create_time",
    "due": "due_time",
    "next attempt": "next_attempt_time",
    "expires": "expire_time",
    "ended": "finish_time",
}

KeyArgument = Annotated[str | None, typer.Argument(help="Its idempotency key.")]
IdOption = Annotated[str | None, typer.Option("--id", help="Its id, instead of the key.")]
Reason = Annotated[str, typer.Option(help="Why, for the timeline.")]

ChannelOption = Annotated[str, typer.Option(metavar="EMAIL|SMS|PUSH")]
ToOption = Annotated[str, typer.Option(help="To this address, in any spelling. Needs --channel.")]
SubscriberOption = Annotated[str, typer.Option(help="To this subscriber.")]
ReferenceOption = Annotated[str, typer.Option(help="With this reference.")]
SinceOption = Annotated[
    datetime | None, typer.Option(parser=to_time, metavar="TIME", help="Accepted at this time or later.")
]
BeforeOption = Annotated[
    datetime | None, typer.Option(parser=to_time, metavar="TIME", help="Accepted before this time.")
]


@command()
async def get(
    session: Session,
    *,
    key: KeyArgument = None,
    id_: IdOption = None,
    timeline: Annotated[bool, typer.Option("--timeline", help="Also say what happened to it.")] = False,
) -> None:
    """Shows one notification."""
    async with session.scheduler() as client:
        with hinted(key):
            found = await client.get(include_timeline=timeline, **to_key(key, id_))
    session.output.show_facts(found, _facts(found))


@command()
async def watch(session: Session, *, key: KeyArgument = None, id_: IdOption = None) -> int:
    """Shows every change of a notification until it has ended; the exit code says how. --timeout bounds the wait."""
    async with (
        session.scheduler() as client,
        aclosing(client.watch(within=session.options.timeout, **to_key(key, id_))) as states,
    ):
        with hinted(key):
            async for found in states:
                session.output.show(found, _change(found))
    return exits.ENDED.get(enum_name(found, "status"), exits.OK)


@command()
async def list_(
    session: Session,
    *,
    status: Annotated[str, typer.Option(help="PENDING, SENT, FAILED, DEAD_LETTERED and so on.")] = "",
    channel: ChannelOption = "",
    to: ToOption = "",
    subscriber: SubscriberOption = "",
    reference: ReferenceOption = "",
    since: SinceOption = None,
    before: BeforeOption = None,
    limit: Annotated[int, typer.Option(min=0, help="At most this many; 0 is all.")] = 50,
) -> None:
    """Shows notifications, newest first."""
    filter_ = to_filter(status, channel, to, subscriber, reference, since, before)
    count = 0
    async with session.scheduler() as client:
        async for found in client.list(filter_, page_size=min(limit or MAX_PAGE, MAX_PAGE)):
            session.output.show(found, _line(found))
            count += 1
            if count == limit:
                break
    if not count:
        session.output.note("none")


@command()
async def cancel(session: Session, *, key: KeyArgument = None, id_: IdOption = None, reason: Reason = "") -> None:
    """Cancels a notification that no worker has taken."""
    async with session.scheduler() as client:
        with hinted(key):
            found = await client.cancel(reason=reason, **to_key(key, id_))
    session.output.show(found, f"cancelled {found.notification_id}")


@command()
async def reschedule(
    session: Session,
    *,
    key: KeyArgument = None,
    id_: IdOption = None,
    at: Annotated[datetime | None, typer.Option(parser=to_time, metavar="TIME", help="When it is due.")] = None,
    in_: Annotated[timedelta | None, typer.Option("--in", parser=to_span, metavar="SPAN", help="Or how soon.")] = None,
    priority: Annotated[str, typer.Option(metavar="HIGH|NORMAL|LOW")] = "",
    reason: Reason = "",
) -> None:
    """Gives a notification that no worker has taken another due time, or priority, or both."""
    if at is not None and in_ is not None:
        raise typer.BadParameter("--at and --in exclude one another")
    if at is None and in_ is None and not priority:
        raise typer.BadParameter("one of --at, --in and --priority is needed")
    async with session.scheduler() as client:
        with hinted(key):
            found = await client.reschedule(
                due=in_ if at is None else at,
                priority=to_value(Priority, priority),
                reason=reason,
                **to_key(key, id_),
            )
    session.output.show(
        found, f"rescheduled {found.notification_id}: {enum_name(found, 'priority')}, due {local(found.due_time)}"
    )


def to_filter(
    status: str,
    channel: str,
    to: str,
    subscriber: str,
    reference: str,
    since: datetime | None,
    before: datetime | None,
) -> NotificationFilter:
    return NotificationFilter(
        status=to_value(Notification.Status, status),
        channel=to_value(Channel, channel),
        address=to,
        subscriber=subscriber,
        reference=reference,
        created_since=None if since is None else to_timestamp(since),
        created_before=None if before is None else to_timestamp(before),
    )


def to_key(key: str | None, id_: str | None) -> Key:
    if key is not None and id_ is None:
        return Key(idempotency_key=key)
    if id_ is not None and key is None:
        return Key(notification_id=id_)
    raise typer.BadParameter("name it by its key, or by --id")


@contextmanager
def hinted(key: str | None) -> Iterator[None]:
    """An id in the place of the key is found by nobody, and looks right."""
    try:
        yield
    except ResourceNotFound as error:
        if key and _is_uuid(key):
            error.add_note("this was taken for a key: an id goes with --id")
        raise


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False


def _line(found: Notification) -> str:
    status, channel = enum_name(found, "status"), enum_name(found, "channel")
    parts = [found.notification_id, f"{status:<13}", f"{channel:<5}", local(found.due_time), found.address]
    return plain("  ".join([*parts, found.idempotency_key]))


def _change(found: Notification) -> str:
    said = [enum_name(found, "status")]
    if found.failure_reason:
        said.append(enum_name(found, "failure_reason"))
    if found.attempt_count:
        said.append(f"attempt {found.attempt_count} of {found.max_attempts}")
    if found.provider_code:
        said.append(found.provider_code)
    if found.HasField("next_attempt_time"):
        said.append(f"due {local(found.next_attempt_time)}")
    return plain(", ".join(said))


def _facts(found: Notification) -> Iterator[tuple[str, str]]:
    yield "id", found.notification_id
    yield "key", found.idempotency_key
    reason = f", {enum_name(found, 'failure_reason')}" if found.failure_reason else ""
    yield "status", enum_name(found, "status") + reason
    yield "to", f"{enum_name(found, 'channel')} {found.address or found.subscriber}"
    yield "priority", enum_name(found, "priority")
    yield "attempts", f"{found.attempt_count} of {found.max_attempts}"
    for name, field in TIMES.items():
        if found.HasField(field):
            yield name, local(getattr(found, field))
    for text in ("provider_code", "provider_message_id", "category", "reference"):
        if value := getattr(found, text):
            yield text.replace("_", " "), value
    for label, value in sorted(found.labels.items()):
        yield "label", f"{label}={value}"
    for entry in found.timeline:
        yield local(entry.time), _entry(entry)


def _entry(entry: TimelineEntry) -> str:
    said = [enum_name(entry, "kind")]
    if entry.attempt:
        said.append(f"attempt {entry.attempt}")
    if entry.HasField("retry_delay"):
        said.append(f"again in {span(entry.retry_delay)}")
    return ", ".join([*said, *filter(None, (entry.provider_code, entry.actor, entry.note))])
