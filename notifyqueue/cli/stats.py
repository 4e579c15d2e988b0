"""`notifyqueue stats`: how the queue stands, once or again and again."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from notifyqueue import Client, NotifyQueueError
from notifyqueue.cli.output import enum_name, local, plain, span
from notifyqueue.cli.rates import Backlogs, Ends, Rate, Rates
from notifyqueue.cli.session import Session, command
from notifyqueue.cli.values import to_span
from notifyqueue.v1.scheduler_pb2 import BoundedCount, GetQueueStatsResponse, Lane, LaneStats

RUNNING = "running"
WORKER_SHOWN = 8  # characters of an id: enough to tell those that are alive from one another


@dataclass(frozen=True, slots=True)
class Speeds:
    """By lane, where they are known."""

    attempts: Mapping[int, Rate] = field(default_factory=dict)
    ends: Mapping[int, Rate] = field(default_factory=dict)
    """Shown where nothing is known of attempts."""
    backlog: Mapping[int, float] = field(default_factory=dict)


NO_SPEEDS = Speeds()


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
    session.output.show(answer, board(answer))


async def _watch(session: Session, client: Client, interval: timedelta) -> None:
    output, rates, ends, backlogs = session.output, Rates(), Ends(), Backlogs()
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
                now = time.monotonic()
                speeds = Speeds(
                    rates.look(answer.workers), ends.look(answer.lanes, now), backlogs.look(answer.lanes, now)
                )
                last = Group(
                    board(answer, speeds),
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


def board(answer: GetQueueStatsResponse, speeds: Speeds = NO_SPEEDS) -> RenderableType:
    """All of it, in 80 columns but for what people wrote."""
    webhooks = answer.webhooks
    parts: list[RenderableType] = [
        lane_table(answer, speeds),
        _totals_table(answer),
        Text(
            f"webhooks: {count(webhooks.unassigned)} unassigned, {count(webhooks.pending)} pending,"
            f" {count(webhooks.given_up)} given up"
        ),
    ]
    if answer.workers:
        parts.append(_worker_table(answer))
    return Group(*parts)


def lane_table(answer: GetQueueStatsResponse, speeds: Speeds = NO_SPEEDS) -> RenderableType:
    """A line per lane, with its rates where they are known, and below them why one does not run, or not at once."""
    table = _table("lane", "due", "scheduled", "processing", "lag")
    if speeds.attempts or speeds.ends:
        table.add_column("sent/s", justify="right", no_wrap=True)
        table.add_column("unsent/s", justify="right", no_wrap=True)
    if speeds.backlog:
        table.add_column("backlog/s", justify="right", no_wrap=True)
    table.add_column("standing", no_wrap=True)
    for lane in answer.lanes:
        table.add_row(
            enum_name(lane, "channel"),
            *(count(each) for each in (lane.due, lane.scheduled, lane.processing)),
            span(lane.lag) if lane.HasField("lag") else "?",
            *_speeds(speeds, lane.channel),
            _standing_word(lane),
        )
    reasons = [
        Text(plain(f"{enum_name(lane, 'channel')}: {_standing(lane)}"))
        for lane in answer.lanes
        if _standing_word(lane) != RUNNING
    ]
    waits = [
        Text(f"{enum_name(lane, 'channel')}: {count(lane.waiting)} waiting for a free slot of their recipients")
        for lane in answer.lanes
        if lane.waiting.count
    ]
    return Group(table, *reasons, *waits)


def _speeds(speeds: Speeds, channel: int) -> Iterator[str]:
    if speeds.ends and not speeds.attempts and channel not in speeds.ends:
        yield from "--"
    elif known := speeds.attempts or speeds.ends:
        rate = known.get(channel, Rate())
        yield from (f"{rate.sent:,.1f}", f"{rate.unsent:,.1f}")
    if speeds.backlog:
        yield f"{speeds.backlog[channel]:+,.1f}" if channel in speeds.backlog else "-"


def _totals_table(answer: GetQueueStatsResponse) -> Table:
    """How many ended in which way, since ever."""
    statuses = [enum_name(total, "status") for total in next(iter(answer.lanes), LaneStats()).totals]
    table = _table("ended", *(status.lower().replace("_", "-") for status in statuses))
    for lane in answer.lanes:
        table.add_row(enum_name(lane, "channel"), *(count(total.count) for total in lane.totals))
    return table


def _worker_table(answer: GetQueueStatsResponse) -> Table:
    table = _table("worker", "phase", "seen", "up")
    rows = [
        {lane.channel: f"{lane.in_flight:,}/{lane.concurrency:,}" for lane in worker.lanes} for worker in answer.workers
    ]
    for lane in answer.lanes:
        longest = max(len(row.get(lane.channel, "-")) for row in rows)
        table.add_column(enum_name(lane, "channel"), justify="right", no_wrap=True, min_width=longest)
    for worker, held in zip(answer.workers, rows, strict=True):
        table.add_row(
            worker.worker_id[:WORKER_SHOWN],
            enum_name(worker, "phase"),
            _since(worker.heartbeat_time),
            _since(worker.start_time),
            *(held.get(lane.channel, "-") for lane in answer.lanes),
        )
    return table


def _since(time_: Timestamp) -> str:
    return span(max(datetime.now(UTC) - time_.ToDatetime(UTC), timedelta()))


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place and column != "phase" else "left", no_wrap=True)
    return table


def _standing_word(found: LaneStats) -> str:
    if found.lane.HasField("pause"):
        return "paused"
    if found.stranded:
        return "STRANDED"
    if found.lane.HasField("open_breaker"):
        return "breaker"
    return "held" if found.lane.HasField("hold_time") else RUNNING


def _standing(found: LaneStats) -> str:
    if not found.stranded:
        return standing(found.lane)
    said = [of_lane] if (of_lane := standing(found.lane)) != RUNNING else []
    return "; ".join([*said, "STRANDED, no worker serves it"])


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
    return "; ".join(said) or RUNNING


def count(number: BoundedCount) -> str:
    return f"{number.count:,}{'+' if number.at_least else ''}"
