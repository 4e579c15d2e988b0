"""Where traces go, for people without a backend: it takes OTLP over gRPC, keeps all of it, and draws a tree."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import grpc.aio
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1 import trace_pb2

Fact = str | int | bool

KINDS = {number: name.removeprefix("SPAN_KIND_").lower() for name, number in trace_pb2.Span.SpanKind.items()}
SHOWN = (
    "notifyqueue.outcome",
    "rpc.status_code",
    "http.response.status_code",
    "http.request.resend_count",
    "notifyqueue.attempt",
)


@dataclass(frozen=True, slots=True)
class Span:
    """As it was told. Ids are in hexadecimal."""

    service: str
    name: str
    kind: str
    trace: str
    id: str
    parent: str
    links: Sequence[str]
    """The ids of the spans that it is linked to."""
    failed: bool
    facts: Mapping[str, Fact]
    began: int
    ended: int
    whole: trace_pb2.Span = field(repr=False, compare=False)


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, port: int = 0) -> None:
        """0: any that is free."""
        self.port = port
        self.spans: list[Span] = []

    async def __aenter__(self) -> Self:
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(0)

    @property
    def endpoint(self) -> str:
        """As OTEL_EXPORTER_OTLP_ENDPOINT has it."""
        return f"http://127.0.0.1:{self.port}"

    async def Export(  # noqa: N802
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: Any
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        self.spans += spans_of(request)
        return trace_service_pb2.ExportTraceServiceResponse()

    def about(self, notification_id: str) -> list[Span]:
        """The traces that a notification occurs in, and those that they are linked with."""
        traces = {span.trace for span in self.spans if span.facts.get("messaging.message.id") == notification_id}
        known = {span.id for span in self.spans if span.trace in traces}
        linked = {link for span in self.spans if span.trace in traces for link in span.links}
        traces |= {span.trace for span in self.spans if span.id in linked or known.intersection(span.links)}
        return [span for span in self.spans if span.trace in traces]


def spans_of(request: trace_service_pb2.ExportTraceServiceRequest) -> Iterator[Span]:
    for resource in request.resource_spans:
        about = {one.key: one.value.string_value for one in resource.resource.attributes}
        service = about.get("service.name", "").removeprefix("notifyqueue-")
        for scope in resource.scope_spans:
            yield from (_span(service, span) for span in scope.spans)


def _span(service: str, span: trace_pb2.Span) -> Span:
    return Span(
        service,
        span.name,
        KINDS[span.kind],
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        [link.span_id.hex() for link in span.links],
        span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        {one.key: getattr(one.value, one.value.WhichOneof("value") or "string_value") for one in span.attributes},
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span,
    )


def tree(spans: Iterable[Span], *, times: bool = False) -> list[str]:
    """One trace below the other, each with what it is linked to; siblings in the order in which they began."""
    found = sorted(spans, key=lambda span: span.began)
    ids = {span.id for span in found}
    names = {span.id: span.name for span in found}
    lines: list[str] = []
    for root in (span for span in found if span.parent not in ids):
        lines += _branch(root, found, names, "", "", times=times)
    return lines


def _branch(
    span: Span, spans: Sequence[Span], names: Mapping[str, str], first: str, rest: str, *, times: bool
) -> Iterator[str]:
    yield first + _line(span, names, times=times)
    below = [other for other in spans if other.parent == span.id]
    for child in below:
        last = child is below[-1]
        yield from _branch(
            *(child, spans, names, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  ")), times=times
        )


def _line(span: Span, names: Mapping[str, str], *, times: bool) -> str:
    words = [span.name, f"({span.service}, {span.kind})"]
    words += [f"{name.rpartition('.')[2]}={span.facts[name]}" for name in SHOWN if name in span.facts]
    if span.failed:
        words.append(f"ERROR {span.facts.get('error.type', '')}".rstrip())
    if span.links:
        words.append(f"-> {_linked(span, names)}")
    if times:
        words.append(f"{(span.ended - span.began) / 1e6:.1f} ms")
    return " ".join(words)


def _linked(span: Span, names: Mapping[str, str]) -> str:
    """By name, and how many of others that are not shown."""
    shown = Counter(names[link] for link in span.links if link in names)
    parts = [name if count == 1 else f"{count} {name}" for name, count in shown.items()]
    others = len(span.links) - shown.total()
    return " and ".join([*parts, *([f"{others} more"] if others else [])])
