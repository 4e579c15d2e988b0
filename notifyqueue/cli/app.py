"""The commands, put together, and how each way to end becomes an exit code. No way shows a traceback."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Annotated

import typer

from notifyqueue.cli import exits
from notifyqueue.cli.output import PROGRAM, Output

# In the order of the help: where each is, of the modules beside this one.
COMMANDS: Mapping[str, str] = {
    "send": "send",
    "batch": "batch",
    "get": "notifications",
    "watch": "notifications",
    "list": "notifications",
    "cancel": "notifications",
    "reschedule": "notifications",
    "redrive": "redrive",
    "template": "templates",
    "subscriber": "subscribers",
    "suppression": "suppressions",
    "stats": "stats",
    "lanes": "operators",
    "drain": "operators",
    "resume": "operators",
}


def application(arguments: Sequence[str]) -> typer.Typer:
    """With the one command that is asked for: to load all of them takes longer than its call. Where none of them is,
    with all: for the help, for a word that nobody knows, and for completion, which has no arguments.
    """
    app = typer.Typer(
        name=PROGRAM,
        help="Schedules notifications, and says and changes what becomes of them.",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_whole)
    word = next((argument for argument in arguments if not argument.startswith("-")), "")
    for name in [word] if word in COMMANDS else COMMANDS:
        module = import_module(f"notifyqueue.cli.{COMMANDS[name]}")
        found = getattr(module, "list_" if name == "list" else name)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata  # a tenth of what all else takes to load

        try:
            print(metadata.version("notifyqueue"))
        except metadata.PackageNotFoundError:
            print("of a checkout")
        raise typer.Exit


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
        code = application(arguments)(list(arguments), prog_name=PROGRAM, standalone_mode=False)
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
