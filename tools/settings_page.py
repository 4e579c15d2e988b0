"""Writes docs/settings.md from the settings themselves: `python -m tools.settings_page`, with `--check` to compare."""

import argparse
import ast
import inspect
import sys
from collections.abc import Mapping
from itertools import pairwise
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
    said = _said(kind)
    rows = [_row(name, field, said.get(name, "")) for name, field in kind.model_fields.items() if name not in left_out]
    return "\n".join([f"## {title}\n", "| variable | default | what it is |", "| --- | --- | --- |", *rows, ""])


def _said(kind: type[ProcessSettings]) -> Mapping[str, str]:
    """What stands below each setting. Pydantic would read it, too, but looks for the source of a class in every module
    that is loaded: at each start of a process, which shows it to nobody.
    """
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if issubclass(each, ProcessSettings):
            found |= _written(ast.parse(inspect.getsource(each)))
    return found


def _written(tree: ast.Module) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for written in tree.body:
        for pair in pairwise(written.body if isinstance(written, ast.ClassDef) else ()):
            match pair:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = text
    return found


def _row(name: str, field: FieldInfo, said: str) -> str:
    return f"| `{name.upper()}` | {_default(field)} | {' '.join(said.split())} |"  # a cell is one line


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
