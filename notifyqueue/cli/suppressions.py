"""`notifyqueue suppression`: whom nothing is sent to."""

from datetime import datetime
from typing import Annotated

import typer

from notifyqueue import Channel, Suppression, SuppressionSource
from notifyqueue.cli.output import enum_name, local, plain
from notifyqueue.cli.session import Session, command
from notifyqueue.cli.values import to_time, to_value
from notifyqueue.v1.recipients_pb2 import BulkDeleteSuppressionsResponse, ListSuppressionsRequest

suppression = typer.Typer(
    name="suppression", help="Says whom nothing is sent to.", rich_markup_mode=None, no_args_is_help=True
)

MAX_PAGE = 1_000
SOURCES = "OPTED_OUT|BOUNCED|COMPLAINED|OPERATOR"

ChannelOption = Annotated[
    str, typer.Option(metavar="EMAIL|SMS|PUSH", help="On which channel. Of a subscriber, default: on all.")
]
ToOption = Annotated[str, typer.Option(help="The address, in any spelling.")]
SubscriberOption = Annotated[str, typer.Option(help="Or the subscriber's name, whatever his address.")]
SourceOption = Annotated[str, typer.Option(metavar=SOURCES, help="What said so.")]
CategoryOption = Annotated[str, typer.Option(help="Only for this category. Default: for all.")]


@suppression.command()
@command()
async def put(
    session: Session,
    *,
    channel: ChannelOption = "",
    to: ToOption = "",
    subscriber: SubscriberOption = "",
    source: SourceOption,
    category: CategoryOption = "",
) -> None:
    """Sends nothing more to an address or a subscriber, also of what was accepted before."""
    _check_whom(channel, to, subscriber)
    which, by = to_value(Channel, channel), to_value(SuppressionSource, source)
    async with session.scheduler() as client:
        answer = await client.put_suppression(which, to, by, subscriber=subscriber, category=category)
    did = "unchanged" if answer.unchanged else "put"
    least = "at least " if answer.in_flight.at_least else ""
    told = f"{did}: {_name(answer.suppression)}, {least}{answer.in_flight.count:,} in flight"
    session.output.show(answer, plain(told))


@suppression.command("list")
@command()
async def list_(
    session: Session,
    *,
    channel: Annotated[str, typer.Option(metavar="EMAIL|SMS|PUSH", help="On this channel.")] = "",
    to: ToOption = "",
    subscriber: Annotated[str, typer.Option(help="Of this subscriber.")] = "",
    source: SourceOption = "",
    category: Annotated[str, typer.Option(help="For this category.")] = "",
    limit: Annotated[int, typer.Option(min=0, help="At most this many; 0 is all.")] = 50,
) -> None:
    """Shows them, newest first."""
    filter_ = ListSuppressionsRequest(
        channel=to_value(Channel, channel),
        address=to,
        subscriber=subscriber,
        category=category,
        source=to_value(SuppressionSource, source),
    )
    count = 0
    async with session.scheduler() as client:
        async for found in client.list_suppressions(filter_, page_size=min(limit or MAX_PAGE, MAX_PAGE)):
            by = f"{found.code} {found.actor}".strip()
            session.output.show(found, plain(f"{local(found.create_time)} {_name(found)} {by}".rstrip()))
            count += 1
            if count == limit:
                break
    if not count:
        session.output.note("none")


@suppression.command()
@command()
async def delete(
    session: Session,
    *,
    channel: ChannelOption = "",
    to: ToOption = "",
    subscriber: SubscriberOption = "",
    source: SourceOption,
    category: CategoryOption = "",
) -> None:
    """Takes one away. Others of the same address go on to hold."""
    _check_whom(channel, to, subscriber)
    which, by = to_value(Channel, channel), to_value(SuppressionSource, source)
    async with session.scheduler() as client:
        await client.delete_suppression(which, to, by, subscriber=subscriber, category=category)
    told = Suppression(channel=which, address=to, subscriber=subscriber, category=category, source=by)
    session.output.show(told, plain(f"deleted: {_name(told)}"))


@suppression.command("delete-all")
@command()
async def delete_all(
    session: Session,
    *,
    source: SourceOption,
    since: Annotated[datetime, typer.Option(parser=to_time, metavar="TIME", help="Put at this time or later.")],
    limit: Annotated[int, typer.Option(min=0, help="At most this many; 0 is all.")] = 100,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many there are.")] = False,
) -> None:
    """Takes away what a source has brought since a time, newest first."""
    by, left = to_value(SuppressionSource, source), limit or None
    total = BulkDeleteSuppressionsResponse()
    async with session.scheduler() as client:
        try:
            while True:
                answer = await client.bulk_delete_suppressions(
                    by,
                    since,
                    limit=MAX_PAGE if left is None else min(left, MAX_PAGE),
                    dry_run=dry_run,
                    page_token=total.next_page_token,
                )
                left = None if left is None else left - answer.deleted
                answer.deleted += total.deleted
                total = answer
                if not answer.next_page_token or left == 0:
                    break
        finally:  # also of a call that failed after others
            if total.HasField("remaining"):
                least = "at least " if total.remaining.at_least else ""
                did = "would delete" if dry_run else "deleted"
                session.output.show(total, f"{did} {total.deleted:,}, {least}{total.remaining.count:,} left")


def _check_whom(channel: str, to: str, subscriber: str) -> None:
    """Raises BadParameter."""
    if bool(to) == bool(subscriber):
        raise typer.BadParameter("one of --to and --subscriber is needed")
    if to and not channel:
        raise typer.BadParameter("--to needs the --channel")


def _name(found: Suppression) -> str:
    where = enum_name(found, "channel") if found.channel else "ALL"
    whom = f"subscriber {found.subscriber}" if found.subscriber else found.address or "erased"
    what = f"{where} {whom} {enum_name(found, 'source')}"
    return f"{what} {found.category}" if found.category else what
