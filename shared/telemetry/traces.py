"""One trace from a client's call to the webhook of its end. Nothing is made while nobody listens.

Everybody imports this, and few have a collector: the SDK is imported where spans leave the process.
"""

import asyncio
import logging
import os
import re
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING

import structlog
from opentelemetry import trace
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from shared.loop import Loop
from shared.telemetry.environment import CONSOLE, OTLP, exporters
from shared.telemetry.forms import NO_FACTS, Fact, Form
from shared.telemetry.spans import NOBODYS, Recorded, Reference, Span, current

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

    from shared.telemetry.drops import Queue
    from shared.telemetry.tracer import Tracer

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
FLAGS = 0x03  # sampled, random; all others are to be passed on as none

_W3C = TraceContextTextMapPropagator()
_WRITTEN = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}( [!-~][ -~]{0,511})?").fullmatch
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
    from shared.telemetry.drops import INTERVAL

    names = exporters("TRACES", (OTLP, CONSOLE))
    tracer = _maker(about) if names else None
    queues = [made for name in names if (made := _queue(name, about))] if tracer else []
    if not tracer or not queues:
        yield
        return

    def told(span: Recorded) -> None:
        for queue in queues:
            queue.told(span)

    tracer.told = told if len(queues) > 1 else queues[0].told

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
        await _shut_down(queues)
        for queue in queues:
            queue.flush()  # what ended while the others were waited for
            queue.drops.tell_last()


def _maker(about: "Resource") -> "Tracer | None":
    """None where the variables are no use to it: nobody does without notifications for that."""
    from shared.telemetry.tracer import Tracer

    try:
        return Tracer(about)
    except Exception as error:
        log.error("traces.unusable", exc_info=error)
        return None


def _queue(name: str, about: "Resource") -> "Queue | None":
    """Likewise."""
    from shared.telemetry.drops import Console, Queue
    from shared.telemetry.otlp import Exporter

    try:
        exporter = Exporter(about) if name == OTLP else Console(about)
        return Queue(exporter, None if os.environ.get("OTEL_BSP_MAX_QUEUE_SIZE") else QUEUE)
    except Exception as error:
        log.error("traces.unusable", exporter=name, exc_info=error)
        return None


async def _shut_down(queues: "Iterable[Queue]") -> None:
    """Each in a thread of its own, which a process does not wait for: the library may take half a minute."""
    loop = asyncio.get_running_loop()

    def shut_down(queue: "Queue", done: asyncio.Event) -> None:
        try:
            queue.shutdown()  # type: ignore[no-untyped-call]
        finally:
            with suppress(RuntimeError):  # nobody waits any more
                loop.call_soon_threadsafe(done.set)

    ended = {queue: asyncio.Event() for queue in queues}
    for queue, done in ended.items():
        queue.flush()
        threading.Thread(target=shut_down, args=(queue, done), name="traces", daemon=True).start()
    try:
        async with asyncio.timeout(FLUSH):
            await asyncio.gather(*(done.wait() for done in ended.values()))
    except TimeoutError:
        for queue in queues:
            queue.exporter.shutdown()  # breaks off the call that is under way


# --- spans


def start(
    form: Form,
    *,
    parent: Reference | None = None,
    links: Sequence[Reference] = (),
    facts: Mapping[str, Fact] = NO_FACTS,
) -> Span:
    """A span below its parent, or the first of a trace; to be entered, or ended. Nothing where nobody listens."""
    return _tracer.start(form, parent=parent, links=links, facts=facts) if _tracer else NOBODYS


def below(form: Form) -> Span:
    """A span below the current one."""
    return _tracer.start(form, parent=current()) if _tracer else NOBODYS


# --- passing on


def received(headers: Mapping[str, str]) -> Reference | None:
    """The span of whoever called, by the headers of the call, in lower case."""
    if "traceparent" not in headers:
        return None
    if len(headers.get("tracestate", "")) > LONGEST_STATE:
        headers = {"traceparent": headers["traceparent"]}
    found = trace.get_current_span(_W3C.extract(headers)).get_span_context()
    if not found.is_valid:
        return None
    state = f" {found.trace_state.to_header()}" if found.trace_state else ""
    ids = found.trace_id.to_bytes(16, "big"), found.span_id.to_bytes(8, "big")
    return Reference(*ids, f"-{found.trace_flags & FLAGS:02x}{state}")


def headers(span: Span) -> Mapping[str, str]:
    """What a call carries so that it is known to come from this span."""
    reference = span.reference
    return dict(zip(HEADERS, reference.text.split(" ", 1), strict=False)) if reference else {}


def restored(text: str | None) -> Reference | None:
    """What was written down."""
    if not text or not _tracer or not _WRITTEN(text):
        return None
    return Reference(bytes.fromhex(text[3:35]), bytes.fromhex(text[36:52]), text[52:])


def written(reference: Reference | None) -> str | None:
    return reference.text if reference else None


def origin(text: str | None, *, recent: bool) -> tuple[Reference | None, Sequence[Reference]]:
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


def group(name: str, operation: str, table: str, causes: Iterable[Reference | None]) -> Span:
    """A statement on behalf of many: below what caused it where that is one, and else linked to all of them."""
    if not _tracer:
        return NOBODYS
    form = _statement(name, operation, table)
    asked = list(causes)
    if len(asked) == 1:
        return _tracer.start(form, parent=asked[0])
    links = [cause for cause in asked if cause]
    return _tracer.start(form, links=links, facts={"db.operation.batch.size": len(asked)})
