"""One trace from a client's call to the webhook of its end. Nothing is made while nobody listens.

What is stored of a span is its W3C `traceparent`, and after a space its `tracestate` where it has one.

Everybody imports this, and few have a collector: the SDK is imported where spans leave the process.
"""

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, cast

import structlog
from opentelemetry import trace
from opentelemetry.trace import INVALID_SPAN, SpanContext, SpanKind, StatusCode, TraceFlags, TraceState
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from shared.loop import Loop
from shared.telemetry.current import current
from shared.telemetry.environment import CONSOLE, OTLP, exporters
from shared.telemetry.forms import Fact, Form

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

    from shared.telemetry.drops import Queue
    from shared.telemetry.spans import Span, Tracer

log = structlog.get_logger()

FLUSH = 3.0  # seconds that a process waits for its last spans to be told
QUEUE = 16_384  # spans: two seconds of a worker that does nothing else

WARN_EACH_TIME = (
    "opentelemetry.sdk._shared_internal",  # of each span that it drops, which costs more than the span
    # Of each call whose headers are none, before it is known whose it is.
    "opentelemetry.trace.span",
    "opentelemetry.trace.propagation.tracecontext",
)

HEADERS = ("traceparent", "tracestate")
# Characters, as W3C asks to pass on. A longer one is dropped, or each of our own calls would carry it.
LONGEST_STATE = 512

_FLAGS = tuple(f"{flags:02x}" for flags in range(256))
_BY_FLAGS = {text: TraceFlags(flags) for flags, text in enumerate(_FLAGS)}
_W3C = TraceContextTextMapPropagator()
_tracer: "Tracer | None" = None


def on() -> bool:
    """Whether anybody listens."""
    return _tracer is not None


@contextmanager
def made_by(tracer: "Tracer") -> Iterator[None]:
    """While it lasts, spans are made by this one."""
    global _tracer
    before, _tracer = _tracer, tracer
    try:
        yield
    finally:
        _tracer = before


@asynccontextmanager
async def exported(about: "Resource") -> AsyncIterator[None]:
    """Spans go where OTEL_TRACES_EXPORTER says; leaving waits at most FLUSH for the last of them."""
    from opentelemetry.sdk.trace import SynchronousMultiSpanProcessor

    from shared.telemetry.drops import INTERVAL

    names = exporters("TRACES", (OTLP, CONSOLE))
    both: SynchronousMultiSpanProcessor = SynchronousMultiSpanProcessor()  # type: ignore[no-untyped-call]
    tracer = _maker(both, about) if names else None
    queues = [made for name in names if (made := _queue(name))] if tracer else []
    if not tracer or not queues:
        yield
        return
    for queue in queues:
        both.add_span_processor(queue)
    if len(queues) == 1:
        tracer.processor = queues[0]

    async def tell() -> float:
        for queue in queues:
            queue.drops.tell()
        return INTERVAL

    for name in WARN_EACH_TIME:
        logging.getLogger(name).setLevel(logging.ERROR)
    log.info("traces.started", exporters=len(queues))
    try:
        with made_by(tracer):
            async with Loop("traces", tell):
                yield
    finally:
        await _shut_down(both, queues)
        for queue in queues:
            queue.drops.tell_last()


def _maker(processor: "SpanProcessor", about: "Resource") -> "Tracer | None":
    """None where the variables are no use to it: nobody does without notifications for that."""
    from shared.telemetry.spans import Tracer

    try:
        return Tracer(processor, about)
    except Exception as error:
        log.error("traces.unusable", exc_info=error)
        return None


def _queue(name: str) -> "Queue | None":
    """Likewise."""
    from shared.telemetry.drops import Console, Queue
    from shared.telemetry.otlp import Exporter

    try:
        exporter = Exporter() if name == OTLP else Console(formatter=_line)
        return Queue(exporter, None if "OTEL_BSP_MAX_QUEUE_SIZE" in os.environ else QUEUE)
    except Exception as error:
        log.error("traces.unusable", exporter=name, exc_info=error)
        return None


def _line(span: "ReadableSpan") -> str:
    return f"{cast('Span', span).readable().to_json(indent=None)}\n"


async def _shut_down(processor: "SpanProcessor", queues: "Iterable[Queue]") -> None:
    """In a thread of its own, which a process does not wait for: the library may take half a minute."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def shut_down() -> None:
        processor.shutdown()
        with suppress(RuntimeError):  # nobody waits any more
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=shut_down, name="traces", daemon=True).start()
    try:
        async with asyncio.timeout(FLUSH):
            await done.wait()
    except TimeoutError:
        for queue in queues:
            queue.exporter.shutdown()  # breaks off the call that is under way


# --- spans


def start(form: Form, *, parent: SpanContext | None = None, links: Sequence[SpanContext] = ()) -> trace.Span:
    """A span below its parent, or the first of a trace; to be entered, or ended. Nothing where nobody listens."""
    return _tracer.start(form, parent=parent, links=links) if _tracer else INVALID_SPAN


def below(form: Form) -> trace.Span:
    """A span below the current one."""
    return start(form, parent=current()) if _tracer else INVALID_SPAN


def fail(span: trace.Span, error_type: str) -> None:
    """`error_type` is one of few: a code or a class."""
    span.set_status(StatusCode.ERROR)
    span.set_attribute("error.type", error_type)


# --- passing on


def received(headers: Mapping[str, str]) -> SpanContext | None:
    """The span of whoever called, by the headers of the call, in lower case."""
    if "traceparent" not in headers:
        return None
    if len(headers.get("tracestate", "")) > LONGEST_STATE:
        headers = {"traceparent": headers["traceparent"]}
    context = trace.get_current_span(_W3C.extract(headers)).get_span_context()
    return context if context.is_valid else None


def headers(span: trace.Span) -> Mapping[str, str]:
    """What a call carries so that it is known to come from this span."""
    return {} if span is INVALID_SPAN else headers_of(span.get_span_context())


def headers_of(context: SpanContext) -> Mapping[str, str]:
    if state := context.trace_state:
        return {"traceparent": _parent(context), "tracestate": state.to_header()}
    return {"traceparent": _parent(context)}


def _parent(context: SpanContext) -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{_FLAGS[context.trace_flags]}"


def context(span: trace.Span) -> SpanContext | None:
    """By which others refer to a span. None where nobody listens."""
    return None if span is INVALID_SPAN else span.get_span_context()


def stored(context: SpanContext | None) -> str | None:
    """A span, to be written down."""
    if context is None:
        return None
    return f"{_parent(context)} {context.trace_state.to_header()}" if context.trace_state else _parent(context)


def restored(text: str | None) -> SpanContext | None:
    """What was written down."""
    if not text or not _tracer:
        return None
    parent, _, state = text.partition(" ")
    try:
        _, trace_id, span_id, flags = parent.split("-")
        made = SpanContext(
            *(int(trace_id, 16), int(span_id, 16), True, _BY_FLAGS[flags]),
            TraceState.from_header([state]) if state else None,
        )
    except (ValueError, KeyError):
        return None
    return made if made.is_valid else None


def origin(text: str | None, *, recent: bool) -> tuple[SpanContext | None, Sequence[SpanContext]]:
    """The parent and the links of what follows from a span that was written down. What follows late is a trace of its
    own: nobody keeps one open for days.
    """
    found = restored(text)
    if found is None:
        return None, ()
    return (found, ()) if recent else (None, (found,))


# --- the database


@cache
def _statement(name: str, operation: str, table: str) -> Form:
    facts: dict[str, Fact] = {
        "db.system.name": "postgresql",
        "db.operation.name": operation,
        "db.collection.name": table,
        "db.query.summary": name,
    }
    return Form(name, SpanKind.CLIENT, facts)


def group(name: str, operation: str, table: str, causes: Iterable[SpanContext | None]) -> trace.Span:
    """A statement on behalf of many: below what caused it where that is one, and else linked to all of them."""
    if not _tracer:
        return INVALID_SPAN
    form = _statement(name, operation, table)
    asked = list(causes)
    links = [cause for cause in asked if cause]
    if len(asked) == 1:
        return start(form, parent=links[0] if links else None)
    span = start(form, links=links)
    span.set_attribute("db.operation.batch.size", len(asked))
    return span
