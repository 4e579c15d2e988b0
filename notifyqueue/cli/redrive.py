"""Sending back what died: one notification, or those that fit a filter."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import timedelta
from functools import partial
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

DEFAULT_LIMIT = 100
MAX_CALL = 1_000  # that one call may send back


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
    limit: Annotated[int | None, typer.Option(min=0, help="At most this many; 0 is all. Default: 100.")] = None,
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
    by_filter = filter_ != NotificationFilter() or limit is not None or dry_run or spread_over is not None
    if not by_filter:
        async with session.scheduler() as client:
            with hinted(key):
                found = await client.redrive(reason=reason, **to_key(key, id_))
        session.output.show(found, f"redriven {found.notification_id}")
        return
    if key is not None or id_ is not None:
        raise typer.BadParameter("name one by its key or --id, or say which by the other options, not both")
    total = BulkRedriveNotificationsResponse()
    async with session.scheduler() as client:
        answers = _calls(
            partial(
                client.bulk_redrive, filter_, dry_run=dry_run, reason=reason, spread_over=spread_over or timedelta()
            ),
            DEFAULT_LIMIT if limit is None else limit or None,
        )
        try:
            async for answer in answers:
                answer.redriven += total.redriven
                answer.passed_over += total.passed_over
                answer.skipped += total.skipped
                total = answer
        finally:  # also of a call that failed after others
            if total.HasField("remaining"):
                session.output.show(total, f"{'would redrive' if dry_run else 'redriven'} {_counts(total)}")


async def _calls(
    redrive_some: Callable[..., Awaitable[BulkRedriveNotificationsResponse]], limit: int | None
) -> AsyncGenerator[BulkRedriveNotificationsResponse, None]:
    """As many as it takes. Each spreads its own over the whole span, in which they lie side by side."""
    left, token = limit, ""
    while True:
        answer = await redrive_some(limit=MAX_CALL if left is None else min(left, MAX_CALL), page_token=token)
        token = answer.next_page_token
        if left is not None:
            left -= answer.redriven
        yield answer
        if not token or left == 0:
            return


def _counts(answer: BulkRedriveNotificationsResponse) -> str:
    more = "at least " if answer.remaining.at_least else ""
    said = f"{answer.redriven:,}, {more}{answer.remaining.count:,} left"
    if answer.passed_over:
        said += f", {answer.passed_over:,} passed over"
    return f"{said}, {answer.skipped:,} skipped: busy just now" if answer.skipped else said
