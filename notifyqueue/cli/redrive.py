"""Sending back what died: one notification, or those that fit a filter."""

from datetime import timedelta
from typing import Annotated

import typer

from notifyqueue import NotificationFilter
from notifyqueue.cli.notifications import (
    BeforeOption,
    ChannelOption,
    IdOption,
    KeyArgument,
    Reason,
    ReferenceOption,
    SinceOption,
    SubscriberOption,
    ToOption,
    hinted,
    to_filter,
    to_key,
)
from notifyqueue.cli.session import Session, command
from notifyqueue.cli.values import to_span
from notifyqueue.v1.scheduler_pb2 import BulkRedriveNotificationsResponse


@command()
async def redrive(
    session: Session,
    *,
    key: KeyArgument = None,
    id_: IdOption = None,
    status: Annotated[str, typer.Option(metavar="DEAD_LETTERED|FAILED", help="Default: DEAD_LETTERED.")] = "",
    channel: ChannelOption = "",
    to: ToOption = "",
    subscriber: SubscriberOption = "",
    reference: ReferenceOption = "",
    since: SinceOption = None,
    before: BeforeOption = None,
    limit: Annotated[int, typer.Option(min=0, help="At most this many, up to 1,000; 0 is 100.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many there are.")] = False,
    spread_over: Annotated[
        timedelta | None,
        typer.Option(parser=to_span, metavar="SPAN", help="They become due one by one over it."),
    ] = None,
    reason: Reason = "",
) -> None:
    """Sends back what died, to be tried again: one notification, or those that fit what the options say, oldest first.

    One that may have been delivered already may arrive twice.
    """
    filter_ = to_filter(status, channel, to, subscriber, reference, since, before)
    by_filter = filter_ != NotificationFilter() or limit or dry_run or spread_over is not None
    if not by_filter:
        async with session.scheduler() as client:
            with hinted(key):
                found = await client.redrive(reason=reason, **to_key(key, id_))
        session.output.show(found, f"redriven {found.notification_id}")
        return
    if key is not None or id_ is not None:
        raise typer.BadParameter("name one by its key or --id, or say which by the other options, not both")
    async with session.scheduler() as client:
        answer = await client.bulk_redrive(
            filter_, limit=limit, dry_run=dry_run, reason=reason, spread_over=spread_over or timedelta()
        )
    session.output.show(answer, f"{'would redrive' if dry_run else 'redriven'} {_counts(answer)}")


def _counts(answer: BulkRedriveNotificationsResponse) -> str:
    more = "at least " if answer.remaining.at_least else ""
    said = f"{answer.redriven:,}, {more}{answer.remaining.count:,} left"
    return f"{said}, {answer.passed_over:,} passed over" if answer.passed_over else said
