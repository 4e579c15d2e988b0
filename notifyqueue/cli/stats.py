"""`notifyqueue stats`: how the queue stands, once or again and again."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from notifyqueue import Client, NotifyQueueError
from notifyqueue.cli.output import enum_name, local, plain, span
from notifyqueue.cli.rates import Rate, Rates
from notifyqueue.cli.session import Session, command
from notifyqueue.cli.values import to_span
from notifyqueue.v1.scheduler_pb2 import BoundedCount, GetQueueStatsResponse, Lane, LaneStats, LiveWorker


@command()
async def stats(
    session: Session,
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Look again and again, until Ctrl-C.")] = False,
    interval: Annotated[
        timedelta,
        typer.Option(
            parser=to_span, metavar="SPAN", help="How often to look, with --watch. Default: 2s.", show_default=False
        ),
    ] = timedelta(seconds=2),
) -> None:
    """Shows what waits, for how long, and what is under way. With a PLATFORM key also the workers that are alive."""
    async with session.scheduler() as client:
        if watch:
            await _watch(session, client, interval)
        answer = await client.stats()
    session.output.show(answer, board(answer, {}))


async def _watch(session: Session, client: Client, interval: timedelta) -> None:
    output, rates = session.output, Rates()
    live = Live(console=output.out, auto_refresh=False, vertical_overflow="visible")
    redraws = output.out.is_terminal and not output.as_json
    last: RenderableType = ""
    if redraws:
        live.start()
    try:
        while True:
            try:
                answer = await client.stats()
            except NotifyQueueError as error:
                if not error.temporary:
                    raise
                trouble = Text(plain(f"no answer for now: {error}"), style="red")
                if redraws:
                    live.update(Group(last, trouble), refresh=True)
                else:
                    output.failed(error, address=session.address("scheduler"))
            else:
                last = Group(
                    board(answer, rates.look(answer.workers)),
                    Text(f"{datetime.now(UTC).astimezone():%H:%M:%S}", style="dim"),
                )
                if redraws:
                    live.update(last, refresh=True)
                else:
                    output.show(answer, last)
            await asyncio.sleep(interval.total_seconds())
    finally:
        if redraws:
            live.stop()


def board(answer: GetQueueStatsResponse, rates: Mapping[int, Rate]) -> RenderableType:
    webhooks = answer.webhooks
    parts: list[RenderableType] = [
        lane_table(answer, rates),
        _totals_table(answer),
        Text(
            f"webhooks: {count(webhooks.unassigned)} unassigned, {count(webhooks.pending)} pending,"
            f" {count(webhooks.given_up)} given up"
        ),
    ]
    if answer.workers:
        parts.append(_worker_table(answer))
    return Group(*parts)


def lane_table(answer: GetQueueStatsResponse, rates: Mapping[int, Rate] | None = None) -> Table:
    """A line per lane; its rates where they are known."""
    table = _table("lane", "due", "scheduled", "processing", "lag")
    if rates:
        table.add_column("sent/s", justify="right")
        table.add_column("unsent/s", justify="right")
    table.add_column("standing")
    for lane in answer.lanes:
        rate = (rates or {}).get(lane.channel, Rate())
        speeds = (f"{rate.sent:,.1f}", f"{rate.unsent:,.1f}") if rates else ()
        table.add_row(
            enum_name(lane, "channel"),
            *(count(each) for each in (lane.due, lane.scheduled, lane.processing)),
            span(lane.lag),
            *speeds,
            Text(plain(_standing(lane))),
        )
    return table


def _totals_table(answer: GetQueueStatsResponse) -> Table:
    """How many ended in which way, since ever."""
    statuses = [enum_name(total, "status") for total in next(iter(answer.lanes), LaneStats()).totals]
    table = _table("ended", *(status.lower().replace("_", "-") for status in statuses))
    for lane in answer.lanes:
        table.add_row(enum_name(lane, "channel"), *(count(total.count) for total in lane.totals))
    return table


def _worker_table(answer: GetQueueStatsResponse) -> Table:
    table = _table("worker", "phase", "seen", "since")
    for lane in answer.lanes:
        table.add_column(enum_name(lane, "channel"), justify="right")
    for worker in answer.workers:
        held = {lane.channel: f"{lane.in_flight:,}/{lane.concurrency:,}" for lane in worker.lanes}
        table.add_row(
            worker.worker_id,
            enum_name(worker, "phase"),
            f"{_age(worker)} ago",
            local(worker.start_time),
            *(held.get(lane.channel, "-") for lane in answer.lanes),
        )
    return table


def _age(worker: LiveWorker) -> str:
    return span(max(datetime.now(UTC) - worker.heartbeat_time.ToDatetime(UTC), timedelta()))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):
        table.add_column(
            column, justify="right" if place and column not in ("phase", "since") else "left", no_wrap=True
        )
    return table


def _standing(found: LaneStats) -> str:
    of_workers = "STRANDED, no worker serves it; " if found.stranded else ""
    return of_workers + standing(found.lane)


def standing(lane: Lane) -> str:
    """Whether a lane runs, and if not, why."""
    said = []
    if lane.HasField("pause"):
        actor = f" by {lane.pause.actor}" if lane.pause.actor else ""
        said.append(f"paused{actor} since {local(lane.pause.time)}: {lane.pause.reason}")
    if lane.HasField("open_breaker"):
        breaker = lane.open_breaker
        said.append(f"breaker open since {local(breaker.time)} ({breaker.cause}), probes {local(breaker.probe_time)}")
    if lane.HasField("hold_time"):
        said.append(f"held by its provider until {local(lane.hold_time)}")
    return "; ".join(said) or "running"


def count(number: BoundedCount) -> str:
    return f"{number.count:,}{'+' if number.at_least else ''}"
