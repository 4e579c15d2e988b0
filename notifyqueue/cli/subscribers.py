"""`notifyqueue subscriber`: people whom notifications name."""

from collections.abc import Iterator
from typing import Annotated

import typer

from notifyqueue import Channel, Subscriber
from notifyqueue.cli.output import local, plain
from notifyqueue.cli.session import Session, command
from notifyqueue.cli.values import to_value
from notifyqueue.v1.recipients_pb2 import DeleteSubscriberResponse, ListSubscribersRequest

subscriber = typer.Typer(
    name="subscriber", help="Keeps people whom notifications name.", rich_markup_mode=None, no_args_is_help=True
)

MAX_PAGE = 1_000

NameArgument = Annotated[str, typer.Argument(help="The name: your own id of the person.")]


@subscriber.command()
@command()
async def put(
    session: Session,
    *,
    name: NameArgument,
    email: Annotated[str, typer.Option(help="Where mail goes.")] = "",
    phone: Annotated[str, typer.Option(help="Where text messages go.")] = "",
    push: Annotated[str, typer.Option(help="The device that pushes go to.")] = "",
    locale: Annotated[str, typer.Option(help="A language tag, as de-AT.")] = "",
    time_zone: Annotated[str, typer.Option(help="As Europe/Vienna.")] = "",
) -> None:
    """Stores all that there is of a subscriber: what is left out is taken away."""
    async with session.scheduler() as client:
        answer = await client.put_subscriber(
            name, email=email, phone=phone, push=push, locale=locale, time_zone=time_zone
        )
    did = "unchanged" if answer.unchanged else "put"
    session.output.show(answer, plain(f"{did}: {_line(answer.subscriber)}"))


@subscriber.command()
@command()
async def get(session: Session, *, name: NameArgument) -> None:
    """Shows a subscriber."""
    async with session.scheduler() as client:
        found = await client.get_subscriber(name)
    session.output.show_facts(found, _facts(found))


@subscriber.command("list")
@command()
async def list_(
    session: Session,
    *,
    channel: Annotated[str, typer.Option(metavar="EMAIL|SMS|PUSH", help="On which channel --to is.")] = "",
    to: Annotated[str, typer.Option(help="With this address, in any spelling.")] = "",
    limit: Annotated[int, typer.Option(min=0, help="At most this many; 0 is all.")] = 50,
) -> None:
    """Shows them; who was put first comes last."""
    filter_ = ListSubscribersRequest(channel=to_value(Channel, channel), address=to)
    count = 0
    async with session.scheduler() as client:
        async for found in client.list_subscribers(filter_, page_size=min(limit or MAX_PAGE, MAX_PAGE)):
            session.output.show(found, plain(_line(found)))
            count += 1
            if count == limit:
                break
    if not count:
        session.output.note("none")


@subscriber.command()
@command()
async def delete(session: Session, *, name: NameArgument) -> None:
    """Erases one, with all that was said to him and where it went. What waits for him is cancelled; opt-outs hold."""
    total = DeleteSubscriberResponse()
    async with session.scheduler() as client:
        while True:
            answer = await client.delete_subscriber(name)
            total.erased += answer.erased
            total.cancelled += answer.cancelled
            total.in_flight += answer.in_flight
            if not answer.more:
                break
    did = f"deleted: {name}, {total.erased:,} notifications erased"
    session.output.show(total, plain(f"{did}, {total.cancelled:,} of them cancelled, {total.in_flight:,} in flight"))


def _facts(found: Subscriber) -> Iterator[tuple[str, str]]:
    for fact in ("subscriber", "email", "phone", "push", "locale", "time_zone"):
        if said := getattr(found, fact):
            yield fact.replace("_", " "), said
    yield "created", local(found.create_time)
    yield "changed", local(found.update_time)


def _line(found: Subscriber) -> str:
    facts = (found.subscriber, found.email, found.phone, found.push, found.locale, found.time_zone)
    return " ".join(fact for fact in facts if fact)
