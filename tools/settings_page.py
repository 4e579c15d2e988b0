"""Writes docs/settings.md from the settings themselves: `python -m tools.settings_page`, with `--check` to compare."""

import argparse
import sys
from pathlib import Path

from pydantic.fields import FieldInfo

from services.dispatcher.settings import Settings as DispatcherSettings
from services.scheduler.settings import Settings as SchedulerSettings
from services.worker.settings import Settings as WorkerSettings
from shared.settings import PREFIX, ProcessSettings

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"

HEAD = f"""\
# Settings

Environment variables, all with the prefix `{PREFIX}`. Durations are seconds. They are read and judged before anything
starts: a process whose settings cannot be used names every one that is wrong, and exits with 78.

This page is written by `python -m tools.settings_page`.
"""

PROCESSES: dict[str, type[ProcessSettings]] = {
    "The scheduler": SchedulerSettings,
    "The worker": WorkerSettings,
    "The dispatcher": DispatcherSettings,
}


def page() -> str:
    sections = [_section("Every process", ProcessSettings, set())]
    for title, kind in PROCESSES.items():
        same = {name for name, field in ProcessSettings.model_fields.items() if _same(field, kind.model_fields[name])}
        sections.append(_section(title, kind, same))
    return "\n".join([HEAD, *sections])


def _same(one: FieldInfo, other: FieldInfo) -> bool:
    return bool(one.default == other.default)


def _section(title: str, kind: type[ProcessSettings], left_out: set[str]) -> str:
    rows = [_row(name, field) for name, field in kind.model_fields.items() if name not in left_out]
    return "\n".join([f"## {title}\n", "| variable | default | what it is |", "| --- | --- | --- |", *rows, ""])


def _row(name: str, field: FieldInfo) -> str:
    said = " ".join((field.description or "").split())  # a cell is one line
    return f"| `{name.upper()}` | {_default(field)} | {said} |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    shown = str(field.default)
    return "" if field.default is None or not shown else f"`{shown}`"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.settings_page")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    if not parser.parse_args().check:
        PAGE.write_text(page())
        return 0
    if PAGE.read_text() == page():
        return 0
    print("docs/settings.md is not what the settings say: run `python -m tools.settings_page`")
    return 1


if __name__ == "__main__":
    sys.exit(main())
