"""The span that a task is in.

Not OpenTelemetry's own context, whose changes take as long as all else of a span: nobody but this project makes spans
here.
"""

from contextvars import ContextVar, Token

from opentelemetry.trace import Span, SpanContext

_current: ContextVar[Span | None] = ContextVar("span", default=None)


def current() -> SpanContext | None:
    """None where nobody listens, and where it is in none."""
    return span.get_span_context() if (span := _current.get()) else None


def enter(span: Span) -> "Token[Span | None]":
    return _current.set(span)


def leave(entered: "Token[Span | None]") -> None:
    _current.reset(entered)
