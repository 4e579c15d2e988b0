"""The commands, put together, and how each way to end becomes an exit code. No way shows a traceback."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Annotated

import typer

from notifyqueue.cli import exits
from notifyqueue.cli.batch import batch
from notifyqueue.cli.notifications import cancel, get, list_, reschedule, watch
from notifyqueue.cli.operators import drain, lanes, resume
from notifyqueue.cli.output import PROGRAM, Output
from notifyqueue.cli.redrive import redrive
from notifyqueue.cli.send import send
from notifyqueue.cli.stats import stats
from notifyqueue.cli.subscribers import subscriber
from notifyqueue.cli.suppressions import suppression
from notifyqueue.cli.templates import template

app = typer.Typer(
    name=PROGRAM,
    help="Schedules notifications, and says and changes what becomes of them.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(send)
app.command()(batch)
app.command()(get)
app.command()(watch)
app.command("list")(list_)
app.command()(cancel)
app.command()(reschedule)
app.command()(redrive)
app.add_typer(template, name="template")
app.add_typer(subscriber, name="subscriber")
app.add_typer(suppression, name="suppression")
app.command()(stats)
app.command()(lanes)
app.command()(drain)
app.command()(resume)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata  # a tenth of what all else takes to load

        try:
            print(metadata.version("notifyqueue"))
        except metadata.PackageNotFoundError:
            print("of a checkout")
        raise typer.Exit


@app.callback()
def _whole(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which one.")
    ] = False,
) -> None:
    pass


def run(arguments: Sequence[str]) -> int:
    """Runs it. Answers the exit code."""
    output = Output(as_json="--json" in arguments)
    try:
        code = app(list(arguments), prog_name=PROGRAM, standalone_mode=False)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        told = error.format_message().removeprefix("Invalid value: ").rstrip(".")
        output.problem(f"{told}; see `{context.command_path if context else PROGRAM} --help`", code=error.exit_code)
        return error.exit_code
    except Exception as error:
        output.problem(f"a fault of this program, please report it: {_place(error)}", code=exits.FAULT)
        return exits.FAULT
    return code if isinstance(code, int) else exits.OK


def _place(error: Exception) -> str:
    """Which exception, and where: not its words, which may repeat what was sent."""
    trace: TracebackType | None = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    where = f" in {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else ""
    return f"{type(error).__name__}{where}"
