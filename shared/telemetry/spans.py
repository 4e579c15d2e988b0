"""Spans as this project makes them: a form that is shared by many, and a few facts of one.

They are OpenTelemetry's by its interfaces, and go through its samplers, processors and exporters. What makes one is our
own, because there is one for each notification that is sent, and the SDK's costs five times as much; and because it
cannot carry what an exception says: a span has facts that were named, and no words.
"""

import time
from collections.abc import Mapping, Sequence
from contextvars import Token
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import Decision, ParentBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags

Fact = str | int | bool

SCHEMA = "https://opentelemetry.io/schemas/1.45.0"
SCOPE = InstrumentationScope("notifyqueue", schema_url=SCHEMA)
MAX_LINKS = 128  # as the standard has it, where nothing else is asked for

UNSET = Status(StatusCode.UNSET)
ERROR = Status(StatusCode.ERROR)


@dataclass(frozen=True, eq=False, slots=True)
class Form:
    """What the spans of one kind have in common. There are few, and each is made once."""

    name: str
    kind: SpanKind
    facts: Mapping[str, Fact]


class _Current(trace.Span):
    """While it is entered it is the current span of its task."""

    _token: Token[Any]

    def __enter__(self) -> Self:
        self._token = contexts.attach(trace.set_span_in_context(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        contexts.detach(self._token)
        if kind is not None and self.is_recording():
            self.set_status(StatusCode.ERROR)
            self.set_attribute("error.type", f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."))
        self.end()


class Unsampled(_Current, NonRecordingSpan):
    """Nobody will see it, and nor what hangs on it."""


class Span(_Current, ReadableSpan):
    def __init__(
        self,
        processor: SpanProcessor,
        resource: Resource,
        form: Form,
        context: SpanContext,
        parent: SpanContext | None,
        links: Sequence[SpanContext],
    ) -> None:
        super().__init__(
            form.name,
            context=context,
            parent=parent,
            resource=resource,
            links=[Link(one) for one in links[:MAX_LINKS]],
            kind=form.kind,
            start_time=time.time_ns(),
            instrumentation_scope=SCOPE,
        )
        self.form = form
        self._own = context
        self.facts: dict[str, Fact] = {}
        self._dropped_links = max(0, len(links) - MAX_LINKS)
        self._processor = processor
        self._began = time.monotonic_ns()
        self._took: int | None = None

    @property
    def attributes(self) -> Mapping[str, Fact]:
        return {**self.form.facts, **self.facts}

    @property
    def dropped_links(self) -> int:
        return self._dropped_links

    @property
    def status(self) -> Status:
        return self._status

    @property
    def end_time(self) -> int | None:
        return None if self._took is None or self.start_time is None else self.start_time + self._took

    def get_span_context(self) -> SpanContext:
        return self._own

    def is_recording(self) -> bool:
        return self._took is None

    def set_attribute(self, key: str, value: Any) -> None:
        self.facts[key] = value

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        self.facts.update(attributes)

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """Without its description, which may be anybody's words."""
        code = status.status_code if isinstance(status, Status) else status
        self._status = ERROR if code is StatusCode.ERROR else UNSET

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        """Nothing: what is worth a word is a fact."""

    def add_link(self, context: SpanContext, attributes: Any = None) -> None:
        """Nothing: whom a span is linked to is known when it begins."""

    def update_name(self, name: str) -> None:
        """Nothing: its form has it."""

    def record_exception(
        self, exception: BaseException, attributes: Any = None, timestamp: int | None = None, escaped: bool = False
    ) -> None:
        """Nothing: the class of an exception is the fact `error.type`."""

    def end(self, end_time: int | None = None) -> None:
        if self._took is None:
            self._took = time.monotonic_ns() - self._began
            self._processor.on_end(self)


class Tracer:
    """Makes spans, where the sampler that OTEL_TRACES_SAMPLER names wants them."""

    def __init__(self, processor: SpanProcessor, resource: Resource) -> None:
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)  # reads the variables
        self._sampler = provider.sampler
        self._asks_parents = isinstance(self._sampler, ParentBased)
        self._ids = provider.id_generator
        self._resource = resource
        self._processor = processor

    def start(
        self, form: Form, *, parent: SpanContext | None = None, links: Sequence[SpanContext] = ()
    ) -> Span | Unsampled:
        """A span below its parent, or the first of a trace. What is only linked to where it comes from is sampled where
        that was.
        """
        trace_id = parent.trace_id if parent else self._ids.generate_trace_id()
        flags = parent.trace_flags if parent else TraceFlags.RANDOM_TRACE_ID
        sampled = self._samples(form, trace_id, parent, links)
        flags = flags | TraceFlags.SAMPLED if sampled else flags & ~TraceFlags.SAMPLED
        context = SpanContext(
            trace_id,
            self._ids.generate_span_id(),
            is_remote=False,
            trace_flags=TraceFlags(flags),
            trace_state=parent.trace_state if parent else None,
        )
        if not sampled:
            return Unsampled(context)
        return Span(self._processor, self._resource, form, context, parent, links)

    def _samples(self, form: Form, trace_id: int, parent: SpanContext | None, links: Sequence[SpanContext]) -> bool:
        if parent and self._asks_parents:
            return parent.trace_flags.sampled
        if links and not parent:
            return any(link.trace_flags.sampled for link in links)
        above = trace.set_span_in_context(NonRecordingSpan(parent)) if parent else None
        result = self._sampler.should_sample(above, trace_id, form.name, form.kind, form.facts)
        return result.decision is Decision.RECORD_AND_SAMPLE
