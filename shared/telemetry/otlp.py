"""Spans to OTLP, over gRPC: as the library does it, but for the cost of putting a span into its message."""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, cast

import grpc
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext

from shared.telemetry.drops import Counting
from shared.telemetry.forms import Fact, Form
from shared.telemetry.spans import MAX_LINKS, Span

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

# What each span has of its own, as Protocol Buffers have it on the wire: tags and lengths, and what they stand before.
# trace_id (1), span_id (2), start_time_unix_nano (7), end_time_unix_nano (8), flags (16); parent_span_id (4).
OWN = Struct("<2s16s2s8scQcQ2sI")
PARENT = Struct("<2s8s")
# One of the field `links` (13): its own trace_id (1), span_id (2) and flags (6).
LINK = Struct("<4s16s2s8scI")

# Of the W3C flags of a span or a link: whether its parent, or what it is linked to, is of another process.
KNOWN = int(trace_pb2.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK)
REMOTE = KNOWN | int(trace_pb2.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK)


class Exporter(Counting, OTLPSpanExporter):
    """What the spans of a form have in common is encoded once; what is left costs a twentieth of the library's way."""

    _left = False

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: object) -> None:
        """May be called twice: by whoever has waited long enough, and by the processor."""
        if not self._left:
            self._left = True
            super().shutdown(timeout_millis)

    def _initialize_channel_and_stub(self) -> None:
        super()._initialize_channel_and_stub()  # type: ignore[no-untyped-call]
        self._client = cast(Any, _Stub(cast(grpc.Channel, self._channel)))

    def _translate_data(self, data: Sequence[ReadableSpan]) -> Any:
        return request(cast(Sequence[Span], data))


class _Stub:
    """The library's, for requests that are on the wire's form already."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.Export: Any = channel.unary_unary(EXPORT, response_deserializer=ExportTraceServiceResponse.FromString)


def request(spans: Sequence[Span]) -> bytes:
    """An ExportTraceServiceRequest: `resource_spans` (1), and in it `scope_spans` (2), as all are of one process."""
    whose, scope = _whose(spans[0])
    return _field(b"\x0a", whose + _field(b"\x12", scope + b"".join(map(_entry, spans))))


def _whose(span: Span) -> tuple[bytes, bytes]:
    whose = encode_spans([Span(span.tracer, span.form, span.context, None, ()).readable()]).resource_spans[0]
    scope = whose.scope_spans[0]
    scope.ClearField("spans")
    encoded = scope.SerializeToString()
    whose.ClearField("scope_spans")
    return whose.SerializeToString(), encoded


def _entry(span: Span) -> bytes:
    """A span as one of the field `spans` (2)."""
    context, parent = span.context, span.parent
    own = OWN.pack(
        *(b"\x0a\x10", context.trace_id.to_bytes(16, "big"), b"\x12\x08", context.span_id.to_bytes(8, "big")),
        *(b"\x39", span.start_time, b"\x41", span.end_time, b"\x85\x01", context.trace_flags | _known(parent)),
    )
    above = PARENT.pack(b"\x22\x08", parent.span_id.to_bytes(8, "big")) if parent else b""
    facts = [_id(name, value) if name.endswith(".id") else _fact(name, value) for name, value in span.facts.items()]
    rare = _rare(span) if span.failed or span.links or context.trace_state else b""
    return _field(b"\x12", b"".join((own, above, _blank(span.form), *facts, rare)))


@lru_cache(maxsize=1024)
def _blank(form: Form) -> bytes:
    blank = trace_pb2.Span(name=form.name, kind=trace_pb2.Span.SpanKind.Value(f"SPAN_KIND_{form.kind.name}"))
    return blank.SerializeToString() + b"".join(_fact(name, value) for name, value in form.facts.items())


@lru_cache(maxsize=4096)
def _fact(name: str, value: Fact) -> bytes:
    """One of the field `attributes`."""
    match value:
        case bool():
            entry = KeyValue(key=name, value=AnyValue(bool_value=value))
        case int():
            entry = KeyValue(key=name, value=AnyValue(int_value=value))
        case _:
            entry = KeyValue(key=name, value=AnyValue(string_value=value))
    return trace_pb2.Span(attributes=[entry]).SerializeToString()


def _id(name: str, value: Fact) -> bytes:
    """Likewise, for what no other span has: the lengths depend on its length only."""
    text = str(value)
    return _before(name, len(text)) + text.encode()


@lru_cache(maxsize=256)
def _before(name: str, length: int) -> bytes:
    return _fact(name, "x" * length)[:-length]


def _rare(span: Span) -> bytes:
    state = span.context.trace_state
    rest = trace_pb2.Span(
        trace_state=state.to_header() if state else "",
        dropped_links_count=max(0, len(span.links) - MAX_LINKS),
    )
    if span.failed:
        rest.status.code = trace_pb2.Status.STATUS_CODE_ERROR
    return b"".join((rest.SerializeToString(), *map(_link, span.links[:MAX_LINKS])))


def _link(context: SpanContext) -> bytes:
    trace_id, span_id = context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big")
    return LINK.pack(
        b"\x6a\x21\x0a\x10", trace_id, b"\x12\x08", span_id, b"\x35", context.trace_flags | _known(context)
    )


def _known(whose: SpanContext | None) -> int:
    return REMOTE if whose and whose.is_remote else KNOWN


def _field(tag: bytes, content: bytes) -> bytes:
    return tag + _length(len(content)) + content


@lru_cache(maxsize=1024)
def _length(value: int) -> bytes:
    """A varint."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
