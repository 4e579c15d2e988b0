"""What is printed: for people, or with `--json` one object a line. Errors go to stderr, in the same two forms."""

import json
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from notifyqueue import errors
from notifyqueue.cli import exits
from notifyqueue.errors import NotifyQueueError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

PROGRAM = "notifyqueue"

Facts: TypeAlias = Iterable[tuple[str, str]]
"""What there is to say of something: a name and a value each."""


class Output:
    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    @cached_property
    def out(self) -> "Console":
        from notifyqueue.cli.drawing import console

        return console(sys.stdout)

    @cached_property
    def err(self) -> "Console":
        from notifyqueue.cli.drawing import console

        return console(sys.stderr)

    def show(self, record: Message | Mapping[str, Any], shown: "str | RenderableType") -> None:
        """A result: the record, or what people see of it."""
        if self.as_json:
            print(to_json(record), flush=True)
        elif isinstance(shown, str):
            print(plain(shown), flush=True)
        else:
            self.out.print(shown)

    def show_facts(self, record: Message, facts: Facts) -> None:
        if self.as_json:
            self.show(record, "")
            return
        from notifyqueue.cli import drawing

        self.out.print(drawing.facts((plain(name), plain(value)) for name, value in facts))

    def note(self, text: str) -> None:
        """Something beside the result, for people alone."""
        if not self.as_json:
            self._told(text)

    def failed(self, error: NotifyQueueError, *, address: str = "", line: int | None = None) -> None:
        """An error: one line, with what to do next."""
        if self.as_json:
            where = {} if line is None else {"line": line}
            self._error_line(where | {"error": _record(error), "exit_code": exits.exit_code(error)})
        elif line is not None:
            self._told(f"line {line}: {said(error, address)}")
        else:
            self.problem(f"{said(error, address)}; {exits.advice(error)}")

    def problem(self, text: str, *, code: int | None = None) -> None:
        """An error that no server told."""
        if self.as_json and code is not None:
            self._error_line({"error": {"message": text}, "exit_code": code})
        else:
            self._told(f"{PROGRAM}: {text}", style="red")

    def _told(self, text: str, style: str | None = None) -> None:
        self.err.print(plain(text), style=style)

    def _error_line(self, record: Mapping[str, Any]) -> None:
        print(to_json(record), file=sys.stderr, flush=True)


def to_json(record: Message | Mapping[str, Any]) -> str:
    return json.dumps(to_dict(record) if isinstance(record, Message) else record, ensure_ascii=False)


def to_dict(message: Message) -> dict[str, Any]:
    """As proto JSON with the contract's names, and every plain field, so that a script need not know the defaults."""
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


def plain(text: str) -> str:
    """One line without what a terminal would obey: some of it was written by callers."""
    return "".join(each if each.isprintable() else " " for each in text)


def enum_name(message: Message, field: str) -> str:
    """The value of an enum field without its prefix: SENT, not STATUS_SENT."""
    kind = message.DESCRIPTOR.fields_by_name[field].enum_type
    if kind is None or (found := kind.values_by_number.get(getattr(message, field))) is None:
        return str(getattr(message, field))
    prefix = kind.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return found.name.removeprefix(prefix)


def local(time: Timestamp) -> str:
    """On the clock of whoever reads it."""
    return time.ToDatetime(tzinfo=UTC).astimezone().isoformat(" ", "seconds")


def span(length: timedelta | Duration) -> str:
    """As 1.5s, 3m 20s, 2h 5m, 4d 3h."""
    seconds = (length.ToTimedelta() if isinstance(length, Duration) else length).total_seconds()
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours}h"
    return f"{hours}h {minutes}m" if hours else f"{minutes}m {seconds}s"


def said(error: NotifyQueueError, address: str) -> str:
    """In words, without what to do about it. `address` is whom the call was made to."""
    if type(error) is errors.Unavailable and not error.reason and address:  # in gRPC's words it is a paragraph
        return f"{address} does not answer (UNAVAILABLE)"
    faults = "; ".join(f"{found.field}: {found.problem}" for found in error.violations)
    if len(error.violations) > 1:
        return str(error).replace(error.message, faults, 1)
    return str(error)


def _record(error: NotifyQueueError) -> Mapping[str, Any]:
    return {
        "code": error.code.name,
        "reason": error.reason,
        "message": error.message,
        "request_id": error.request_id,
        "metadata": error.metadata,
        "violations": [{"field": found.field, "description": found.problem} for found in error.violations],
        "retry_after": None if error.retry_after is None else error.retry_after.total_seconds(),
        "advice": exits.advice(error),
    }
