"""`notifyqueue batch`: a file of notifications, of any length, that can be broken off and run again."""

import io
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, aclosing
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from notifyqueue import Outcome, ScheduleNotificationRequest
from notifyqueue.batch import PATIENCE, OnWait, schedule_all
from notifyqueue.cli import exits, files
from notifyqueue.cli.files import Line
from notifyqueue.cli.output import Output, plain, said, span, to_json
from notifyqueue.cli.session import Session, command
from notifyqueue.cli.values import to_span
from notifyqueue.errors import NotifyQueueError

# A server with much to do takes a while for 500; to repeat them meanwhile would give it more.
LONGEST_CALL = timedelta(minutes=1)


@dataclass(slots=True)
class Tally:
    """What became of the lines."""

    accepted: int = 0
    replayed: int = 0
    refused: int = 0
    malformed: int = 0
    unknown: int = 0  # not accepted in time; running it again says
    waits_for: str = ""  # why nothing goes on, while it does not
    began: float = field(default_factory=time.monotonic, repr=False)

    @property
    def settled(self) -> int:
        return self.accepted + self.replayed + self.refused

    def rate(self) -> float:
        return self.settled / max(time.monotonic() - self.began, 1e-3)

    def exit_code(self) -> int:
        if self.unknown:
            return exits.TRY_AGAIN
        return exits.LINES_REFUSED if self.refused or self.malformed else exits.OK

    def record(self) -> Mapping[str, Any]:
        return {name: value for name, value in asdict(self).items() if name not in ("began", "waits_for")}

    def said(self) -> str:
        parts = [f"accepted {self.accepted:,}"]
        for name, count in (
            ("already accepted", self.replayed),
            ("refused", self.refused),
            ("malformed", self.malformed),
            ("not known", self.unknown),
        ):
            if count:
                parts.append(f"{name} {count:,}")
        took = span(timedelta(seconds=time.monotonic() - self.began))
        waiting = f"; {self.waits_for}" if self.waits_for else ""
        return plain(f"{', '.join(parts)} in {took} ({self.rate():,.0f}/s){waiting}")


@command()
async def batch(
    session: Session,
    *,
    file: Annotated[Path, typer.Argument(help="JSON lines or CSV; - is stdin.")],
    format_: Annotated[
        str | None, typer.Option("--format", metavar="jsonl|csv", help="Default: what the file's name ends with.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first malformed line.")] = False,
    patience: Annotated[
        timedelta,
        typer.Option(
            parser=to_span,
            metavar="SPAN",
            help="How long to go on while nothing of a batch is accepted. Default: 5m.",
            show_default=False,
        ),
    ] = PATIENCE,
) -> int:
    """Schedules the notifications of a file, four batches at once.

    Each line of JSON is a ScheduleNotificationRequest; the first line of a CSV names its fields, as email.subject. Run
    again after any end, it goes on: what was accepted is counted as already accepted.
    """
    chosen = format_ or files.format_of(file)
    if chosen not in ("jsonl", "csv"):
        raise typer.BadParameter("say --format jsonl or --format csv")
    output, tally = session.output, Tally()
    with ExitStack() as stack:
        raw: BinaryIO = sys.stdin.buffer if str(file) == "-" else stack.enter_context(file.open("rb"))
        text = io.TextIOWrapper(raw, "utf-8-sig", errors="surrogateescape", newline="")
        progress = stack.enter_context(_progress(output))
        task = progress.add_task("", total=None if str(file) == "-" else file.stat().st_size, settled=0, rate="")

        def advance(size: int) -> None:
            progress.update(task, advance=size, settled=f"{tally.settled:,}", rate=f"{tally.rate():,.0f}/s")

        def items() -> Iterator[tuple[Line, ScheduleNotificationRequest]]:
            for line in files.read(text, chosen):  # type: ignore[arg-type]
                if line.request is not None:
                    yield Line(line.number, line.size), line.request
                    continue
                tally.malformed += 1
                _malformed(output, line)
                advance(line.size)
                if strict:
                    return

        on_wait = _wait_teller(session, tally)
        try:
            async with (
                session.scheduler(LONGEST_CALL) as client,
                aclosing(schedule_all(client.batch, items(), patience=patience, on_wait=on_wait)) as outcomes,
            ):
                async for outcome in outcomes:
                    _count(output, tally, outcome)
                    advance(outcome.tag.size)
        except files.HeaderInvalid as error:
            output.problem(f"{file}: {error}", code=exits.INVALID)
            return exits.INVALID
        finally:
            progress.stop()
            output.show({"summary": tally.record()}, tally.said())
    if tally.unknown:
        output.note(exits.AGAIN)
    return tally.exit_code()


def _wait_teller(session: Session, tally: Tally) -> OnWait:
    """Says once that nothing goes on, until something does."""

    def tell(error: NotifyQueueError, left: timedelta) -> None:
        before, tally.waits_for = tally.waits_for, said(error, session.address("scheduler"))
        if not before:
            session.output.note(f"{tally.waits_for}; trying for {span(left)} more")

    return tell


def _malformed(output: Output, line: Line) -> None:
    if output.as_json:
        print(to_json({"line": line.number, "problem": line.problem}), flush=True)
    else:
        output.note(f"line {line.number}: {line.problem}")


def _count(output: Output, tally: Tally, outcome: Outcome[Line]) -> None:
    number = outcome.tag.number
    if error := outcome.error:
        if error.temporary:
            tally.unknown += 1
        else:
            tally.refused += 1
        output.failed(error, line=number)
        return
    tally.waits_for = ""
    if outcome.replayed:
        tally.replayed += 1
    else:
        tally.accepted += 1
    if output.as_json:
        record = {"line": number, "notification_id": outcome.notification_id, "replayed": outcome.replayed}
        print(to_json(record))


def _progress(output: Output) -> Progress:
    return Progress(
        TextColumn("{task.fields[settled]}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=output.err,
        transient=True,
        disable=output.as_json or not output.err.is_terminal,
    )
