"""What the SDK of OpenTelemetry has to say of spans: which are made, what their ids are, how others have them."""

from collections.abc import Callable, Mapping, Sequence

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.sampling import DEFAULT_ON, Decision, ParentBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, Status, StatusCode, TraceFlags, TraceState

from shared.telemetry.forms import NO_FACTS, Fact, Form
from shared.telemetry.spans import Recorded, Reference, Unsampled

SCOPE = InstrumentationScope("notifyqueue", schema_url="https://opentelemetry.io/schemas/1.45.0")

# W3C's flags of a trace that begins here: its id is random.
SAMPLED, UNSAMPLED = "-03", "-02"


class Tracer:
    """Makes spans, where the sampler that OTEL_TRACES_SAMPLER names wants them."""

    told: Callable[[Recorded], object]
    """Called with each, at its end."""

    def __init__(self, resource: Resource) -> None:
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)  # reads the variables
        self._sampler = provider.sampler
        self._asks_parents = isinstance(self._sampler, ParentBased)
        self._begins_all = self._sampler is DEFAULT_ON
        self._ids = provider.id_generator

    def start(
        self,
        form: Form,
        *,
        parent: Reference | None = None,
        links: Sequence[Reference] = (),
        facts: Mapping[str, Fact] = NO_FACTS,
    ) -> Recorded | Unsampled:
        """A span below its parent, or the first of a trace. What is only linked to where it comes from is sampled where
        that was, if the sampler would ask a parent.
        """
        span_id = self._ids.generate_span_id().to_bytes(8, "big")
        if parent:
            trace_id, rest, sampled = parent.trace_id, parent.rest, parent.sampled
            if not self._asks_parents and self._samples(form, trace_id, parent) is not sampled:
                rest, sampled = f"-{parent.flags ^ TraceFlags.SAMPLED:02x}{rest[3:]}", not sampled
        else:
            trace_id = self._ids.generate_trace_id().to_bytes(16, "big")
            follows = links and self._asks_parents
            sampled = any(one.sampled for one in links) if follows else self._samples(form, trace_id, None)
            rest = SAMPLED if sampled else UNSAMPLED
        if not sampled:
            return Unsampled(trace_id, span_id, rest)
        return Recorded(trace_id, span_id, rest, form, parent, links, {**facts}, self.told)

    def _samples(self, form: Form, trace_id: bytes, parent: Reference | None) -> bool:
        if self._begins_all and not parent:
            return True
        above = trace.set_span_in_context(NonRecordingSpan(_context(parent))) if parent else None
        result = self._sampler.should_sample(above, int.from_bytes(trace_id, "big"), form.name, form.kind, form.facts)
        return result.decision is Decision.RECORD_AND_SAMPLE


def readable(span: Recorded, resource: Resource) -> ReadableSpan:
    """As the SDK has it."""
    return ReadableSpan(
        span.form.name,
        context=_context(span),
        parent=_context(span.parent) if span.parent else None,
        resource=resource,
        attributes={**span.form.facts, **span.facts},
        links=[Link(_context(one)) for one in span.links],
        kind=span.form.kind,
        status=Status(StatusCode.ERROR if span.failed else StatusCode.UNSET),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=SCOPE,
    )


def _context(reference: Reference) -> SpanContext:
    return SpanContext(
        int.from_bytes(reference.trace_id, "big"),
        int.from_bytes(reference.span_id, "big"),
        reference.remote,
        TraceFlags(reference.flags),
        TraceState.from_header([reference.state]) if reference.state else None,
    )
