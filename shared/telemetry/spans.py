"""Spans as this project makes them: a form that is shared by many, and a few facts of one.

They go through OpenTelemetry's samplers, processors and exporters. What makes one is our own, because there are several
for each notification that is sent, and the SDK's take as long as all else that a worker does for it; and because its
own carry what an exception says: a span has facts that were named, and no words.
"""

import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from types import TracebackType
from typing import ClassVar, Self

from shared.telemetry.forms import Fact, Form


class Reference:
    """By which others refer to a span: its ids, and what is handed on to whatever hangs on it."""

    __slots__ = ("rest", "span_id", "trace_id")

    remote: ClassVar[bool] = True
    """It is of another process, or was written down."""

    def __init__(self, trace_id: bytes, span_id: bytes, rest: str) -> None:
        """`rest` are the flags and the state as `text` has them: `-01 vendor=a`."""
        self.trace_id = trace_id
        self.span_id = span_id
        self.rest = rest

    @property
    def text(self) -> str:
        """Its W3C `traceparent`, and after a space its `tracestate` where it has one: so it is written down."""
        return f"00-{self.trace_id.hex()}-{self.span_id.hex()}{self.rest}"

    @property
    def sampled(self) -> bool:
        return self.rest[2] in "13579bdf"

    @property
    def flags(self) -> int:
        return int(self.rest[1:3], 16)

    @property
    def state(self) -> str:
        return self.rest[4:]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reference) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.span_id)


class Span:
    """What is told of something that is done: nothing, where nobody listens."""

    __slots__ = ()

    recorded: ClassVar[bool] = False
    """Whether its facts are of use to anybody."""

    @property
    def reference(self) -> Reference | None:
        """None where nobody listens."""
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def set(self, name: str, value: Fact) -> None:
        pass

    def fail(self, error_type: str) -> None:
        """`error_type` is one of few: a code or a class."""

    def end(self) -> None:
        """May be called twice."""


NOBODYS = Span()


class Unsampled(Reference, Span):
    """Nobody will see it, nor what hangs on it. While it is entered it is the current span of its task."""

    __slots__ = ("_entered",)

    remote = False
    _entered: "Token[Unsampled | None]"

    @property
    def reference(self) -> Reference:
        return self

    def __enter__(self) -> Self:
        self._entered = _current.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            _current.reset(self._entered)
        except ValueError:
            return  # what nobody waits for any more is finalised outside of its task


class Recorded(Unsampled):
    __slots__ = ("_began", "_told", "end_time", "facts", "failed", "form", "links", "parent", "start_time")

    recorded = True

    def __init__(
        self,
        trace_id: bytes,
        span_id: bytes,
        rest: str,
        form: Form,
        parent: Reference | None,
        links: Sequence[Reference],
        facts: dict[str, Fact],
        told: "Callable[[Recorded], object]",
    ) -> None:
        """`told` is called at its end."""
        self.trace_id = trace_id
        self.span_id = span_id
        self.rest = rest
        self.form = form
        self.parent = parent
        self.links = links
        self.facts = facts
        self.failed = False
        self.end_time = 0
        self._told = told
        self.start_time = time.time_ns()
        self._began = time.monotonic_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and not self.end_time:
            self.fail(f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."))
        self.end()
        super().__exit__(kind, error, trace)

    def set(self, name: str, value: Fact) -> None:
        self.facts[name] = value

    def fail(self, error_type: str) -> None:
        self.failed = True
        self.facts["error.type"] = error_type

    def end(self) -> None:
        if not self.end_time:
            self.end_time = self.start_time + time.monotonic_ns() - self._began
            self._told(self)


# Not OpenTelemetry's own context, whose changes take as long as all else of a span: nobody but us makes spans here.
_current: ContextVar[Unsampled | None] = ContextVar("span", default=None)


def current() -> Unsampled | None:
    """The span that a task is in. None where nobody listens, and where it is in none."""
    return _current.get()
