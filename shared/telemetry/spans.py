"""Spans as this project makes them: a form that is shared by many, and a few facts of one.

They are OpenTelemetry's by its interfaces, and go through its samplers, processors and exporters. What makes one is our
own, because there is one for each notification that is sent, and the SDK's takes as long as all else that a worker does
for it; and because it cannot carry what an exception says: a span has facts that were named, and no words.
"""

import time
from collections.abc import Mapping, Sequence
from contextvars import Token
from types import TracebackType
from typing import Any, Self, cast

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import DEFAULT_ON, Decision, ParentBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, Status, StatusCode, TraceFlags

from shared.telemetry.current import enter, leave
from shared.telemetry.forms import Fact, Form

SCOPE = InstrumentationScope("notifyqueue", schema_url="https://opentelemetry.io/schemas/1.45.0")
MAX_LINKS = 128  # as the standard has it, where nothing else is asked for

BEGUN = TraceFlags(TraceFlags.SAMPLED | TraceFlags.RANDOM_TRACE_ID)
UNSAMPLED = TraceFlags(TraceFlags.RANDOM_TRACE_ID)


class _Current(trace.Span):
    """While it is entered it is the current span of its task."""

    _entered: "Token[trace.Span | None]"

    def __enter__(self) -> Self:
        self._entered = enter(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave(self._entered)
        if kind is not None and self.is_recording():
            self.set_status(StatusCode.ERROR)
            self.set_attribute("error.type", f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."))
        self.end()


class Unsampled(_Current, NonRecordingSpan):
    """Nobody will see it, nor what hangs on it."""


class Span(_Current):
    failed = False
    end_time = 0

    def __init__(
        self,
        tracer: "Tracer",
        form: Form,
        context: SpanContext,
        parent: SpanContext | None,
        links: Sequence[SpanContext],
    ) -> None:
        self.tracer = tracer
        self.form = form
        self.context = context
        self.parent = parent
        self.links = links
        self.facts: dict[str, Fact] = {}
        self.start_time = time.time_ns()
        self._began = time.monotonic_ns()

    def readable(self) -> ReadableSpan:
        """As the SDK has it."""
        return ReadableSpan(
            self.form.name,
            context=self.context,
            parent=self.parent,
            resource=self.tracer.resource,
            attributes={**self.form.facts, **self.facts},
            links=[Link(one) for one in self.links],
            kind=self.form.kind,
            status=Status(StatusCode.ERROR if self.failed else StatusCode.UNSET),
            start_time=self.start_time,
            end_time=self.end_time,
            instrumentation_scope=SCOPE,
        )

    def get_span_context(self) -> SpanContext:
        return self.context

    def is_recording(self) -> bool:
        return not self.end_time

    def set_attribute(self, key: str, value: Any) -> None:
        self.facts[key] = value

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        self.facts.update(attributes)

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """Without its description, which may be anybody's words."""
        code = status.status_code if isinstance(status, Status) else status
        self.failed = code is StatusCode.ERROR

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
        if not self.end_time:
            self.end_time = self.start_time + time.monotonic_ns() - self._began
            self.tracer.processor.on_end(cast(ReadableSpan, self))  # which it asks for its context, and hands on


class Tracer:
    """Makes spans, where the sampler that OTEL_TRACES_SAMPLER names wants them."""

    def __init__(self, processor: SpanProcessor, resource: Resource) -> None:
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)  # reads the variables
        self.processor = processor
        self.resource = resource
        self._sampler = provider.sampler
        self._asks_parents = isinstance(self._sampler, ParentBased)
        self._begins_all = self._sampler is DEFAULT_ON
        self._ids = provider.id_generator

    def start(
        self, form: Form, *, parent: SpanContext | None = None, links: Sequence[SpanContext] = ()
    ) -> Span | Unsampled:
        """A span below its parent, or the first of a trace. What is only linked to where it comes from is sampled where
        that was, if the sampler would ask a parent.
        """
        if parent:
            trace_id, flags, state = parent.trace_id, parent.trace_flags, parent.trace_state
            if not self._asks_parents and self._samples(form, trace_id, parent) is not flags.sampled:
                flags = TraceFlags(flags ^ TraceFlags.SAMPLED)
        else:
            trace_id, state = self._ids.generate_trace_id(), None
            follows = links and self._asks_parents
            sampled = any(one.trace_flags.sampled for one in links) if follows else self._samples(form, trace_id, None)
            flags = BEGUN if sampled else UNSAMPLED
        context = SpanContext(trace_id, self._ids.generate_span_id(), False, flags, state)
        return Span(self, form, context, parent, links) if flags & TraceFlags.SAMPLED else Unsampled(context)

    def _samples(self, form: Form, trace_id: int, parent: SpanContext | None) -> bool:
        if self._begins_all and not parent:
            return True
        above = trace.set_span_in_context(NonRecordingSpan(parent)) if parent else None
        result = self._sampler.should_sample(above, trace_id, form.name, form.kind, form.facts)
        return result.decision is Decision.RECORD_AND_SAMPLE
