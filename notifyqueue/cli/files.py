"""Files of notifications, read as they are needed: JSON lines, or CSV with a header. A bad line costs only itself."""

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, TextIO, TypeAlias

import typer
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import ParseDict, ParseError

from notifyqueue import ScheduleNotificationRequest
from notifyqueue.cli.values import to_span

MAX_LINE = 1024 * 1024  # of characters; the largest request is smaller

Format: TypeAlias = Literal["jsonl", "csv"]
SUFFIXES: dict[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv"}

OTHER_SIGNS = {";": "semicolons", "\t": "tabs", "|": "bars"}

TRUTHS = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file: a request, or else what is wrong with it, in words that repeat nothing of it."""

    number: int
    size: int  # bytes
    request: ScheduleNotificationRequest | None = None
    problem: str = ""


class HeaderInvalid(Exception):
    """A CSV whose columns cannot be understood: nothing of it is."""


def format_of(path: Path) -> Format | None:
    return SUFFIXES.get(path.suffix.lower())


def read(text: TextIO, format_: Format) -> Iterator[Line]:
    """Raises HeaderInvalid. `text` is opened with `errors="surrogateescape"` and `newline=""`."""
    return read_csv(text) if format_ == "csv" else read_json_lines(text)


class _Counted:
    """The lines of a text, with their number and bytes. One that is too long is passed over as an empty one."""

    def __init__(self, text: TextIO) -> None:
        self._text = text
        self.number = 0
        self._size = 0
        self._overlong = False

    def __iter__(self) -> Iterator[str]:
        while line := self._text.readline(MAX_LINE):
            self.number += 1
            self._add(line)
            if len(line) == MAX_LINE and not line.endswith("\n"):
                self._overlong = True
                while (rest := self._text.readline(MAX_LINE)) and not rest.endswith("\n"):
                    self._add(rest)
                self._add(rest)
                line = "\n"
            yield line

    def _add(self, line: str) -> None:
        self._size += len(line.encode(errors="surrogateescape"))

    def taken(self) -> tuple[int, bool]:
        """How many bytes since the last time, and whether a line of them was too long."""
        found = self._size, self._overlong
        self._size, self._overlong = 0, False
        return found


def read_json_lines(text: TextIO) -> Iterator[Line]:
    """Each line the proto JSON of a ScheduleNotificationRequest. Empty lines are none."""
    lines = _Counted(text)
    for line in lines:
        size, overlong = lines.taken()
        if overlong:
            yield Line(lines.number, size, problem="is too long")
        elif line.strip():
            yield _line(lines.number, size, line)


def _line(number: int, size: int, line: str) -> Line:
    if not _is_text(line):
        return Line(number, size, problem="is not UTF-8")
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return Line(number, size, problem="is no JSON")
    if not isinstance(found, dict):
        return Line(number, size, problem="is no JSON object")
    return _parsed(number, size, found)


def read_csv(text: TextIO) -> Iterator[Line]:
    """The header names fields of ScheduleNotificationRequest by their path, as `email.subject` or `labels.order`. What
    is empty is not set."""
    lines = _Counted(text)
    reader = csv.reader(iter(lines), strict=True)
    columns = _header(reader)
    lines.taken()
    while True:
        first = lines.number + 1
        problem, row = "", None
        try:
            row = next(reader, None)
        except csv.Error as error:
            problem = f"is no CSV: {error}{_swallowed(first, lines.number)}"
        size, overlong = lines.taken()
        if overlong:
            yield Line(first, size, problem="is too long")
        elif problem:
            yield Line(first, size, problem=problem)
        elif row is None:
            return
        elif row:
            yield _row(first, size, columns, row)


def _swallowed(first: int, last: int) -> str:
    """A quote that is not closed where it should be takes what follows with it, and people look for that."""
    if last == first:
        return ""
    return f"; a quoted field took {last - first:,} more lines with it, up to line {last}"


def _is_text(*parts: str) -> bool:
    """Whether all of it was UTF-8."""
    try:
        return all(part.encode() is not None for part in parts)
    except UnicodeEncodeError:
        return False


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    path: tuple[str, ...]
    field: FieldDescriptor


def _header(reader: Iterator[list[str]]) -> list[_Column]:
    try:
        names = [name.strip() for name in next(reader, [])]
    except csv.Error as error:
        raise HeaderInvalid(f"line 1 is no CSV: {error}") from None
    if not _is_text(*names):
        raise HeaderInvalid("line 1 is not UTF-8")
    if len(names) == 1 and (found := next((sign for sign in OTHER_SIGNS if sign in names[0]), None)):
        raise HeaderInvalid(f"line 1 has {OTHER_SIGNS[found]}: the file must be comma-separated")
    if "idempotency_key" not in names:
        raise HeaderInvalid("line 1 must name the columns, and one of them idempotency_key")
    if twice := {name for name in names if names.count(name) > 1}:
        raise HeaderInvalid(f"columns are there twice: {', '.join(sorted(twice))}")
    return [_column(name, place) for place, name in enumerate(names, 1)]


def _column(name: str, place: int) -> _Column:
    kind: Descriptor | None = ScheduleNotificationRequest.DESCRIPTOR
    path: list[str] = []
    rest = name
    while kind and rest:
        part, _, rest = rest.partition(".")
        if not (field := kind.fields_by_name.get(part)):
            break
        path.append(part)
        kind = field.message_type
        if kind and kind.GetOptions().map_entry:  # what follows is the caller's own word, and may have dots
            if rest:
                return _Column(name, (*path, rest), kind.fields_by_name["value"])
            break
        if kind is None or kind.full_name.startswith("google.protobuf."):
            if not rest:
                return _Column(name, tuple(path), field)
            break
    raise HeaderInvalid(f"column {place}: {name or 'without a name'} is no field of ScheduleNotificationRequest")


def _row(number: int, size: int, columns: list[_Column], row: list[str]) -> Line:
    if not _is_text(*row):
        return Line(number, size, problem="is not UTF-8")
    if len(row) != len(columns):
        return Line(number, size, problem=f"has {len(row)} cells, and the header {len(columns)}")
    request: dict[str, Any] = {}
    for column, cell in zip(columns, row, strict=True):
        if cell == "":
            continue
        try:
            value = _value(column.field, cell)
        except (LookupError, typer.BadParameter):
            return Line(number, size, problem=f"{column.name}: not a valid value")
        place = request
        for part in column.path[:-1]:
            place = place.setdefault(part, {})
        place[column.path[-1]] = value
    return _parsed(number, size, request)


def _value(field: FieldDescriptor, cell: str) -> object:
    """A cell as proto JSON has it. Raises LookupError or BadParameter."""
    if field.type == FieldDescriptor.TYPE_BOOL:
        return TRUTHS[cell.strip().lower()]
    if field.enum_type:
        prefix = field.enum_type.values_by_number[0].name.removesuffix("UNSPECIFIED")
        return prefix + cell.strip().upper().removeprefix(prefix)
    if field.message_type and field.message_type.name == "Duration":
        length = to_span(cell)
        return f"{length // timedelta(seconds=1)}.{length.microseconds:06}s"
    return cell


def _parsed(number: int, size: int, found: dict[str, Any]) -> Line:
    try:
        return Line(number, size, ParseDict(found, ScheduleNotificationRequest()))
    except ParseError as error:
        return Line(number, size, problem=_said(error))
    except (ValueError, RecursionError):  # a text that is not Unicode
        return Line(number, size, problem="is not UTF-8")


def _said(error: ParseError) -> str:
    """What was wrong, and where: not in the words of protobuf, which repeat the value."""
    said = str(error)
    where = re.findall(r' at "?ScheduleNotificationRequest((?:\.\w+)+)', said)
    path = where[-1].removeprefix(".") if where else ""
    if unknown := re.search(r'has no field named "(\w+)"', said):
        return f"{path}.{unknown[1]}: no such field".removeprefix(".")
    if several := re.search(r'multiple "(\w+)" oneof', said):
        return f"more than one {several[1]}"
    if not path and (field := re.match(r"Failed to parse (\w+) field", said)):
        path = field[1]
    return f"{path}: not a valid value" if path else "is no ScheduleNotificationRequest"
