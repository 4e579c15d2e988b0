"""Spans to OTLP, over gRPC: as the library does it, but for the cost of putting a span into its message."""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, TypeAlias, cast

import grpc
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind

from shared.telemetry.drops import Counting
from shared.telemetry.forms import Fact, Form
from shared.telemetry.spans import Recorded, Reference
from shared.telemetry.tracer import readable

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

MAX_LINKS = 128  # as the standard has it, where nothing else is asked for

# What each span has of its own, as Protocol Buffers have it on the wire: tags and lengths, and what they stand before.
# trace_id (1), span_id (2), start_time_unix_nano (7), end_time_unix_nano (8), flags (16), and parent_span_id (4).
FIRST = Struct("<2s16s2s8scQcQ2sI")
BELOW = Struct("<2s16s2s8scQcQ2sI2s8s")
# One of the field `links` (13): its own trace_id (1), span_id (2) and flags (6).
LINK = Struct("<4s16s2s8scI")

# Of the W3C flags of a span or a link: whether its parent, or what it is linked to, is of another process.
KNOWN = int(trace_pb2.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK)
REMOTE = KNOWN | int(trace_pb2.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK)


class Exporter(Counting, OTLPSpanExporter):
    """Spans are put on the wire's form before they wait to be exported, and what those of a form have in common is
    encoded once: that costs a twentieth of the library's way.
    """

    _left = False

    def __init__(self, about: Resource) -> None:
        super().__init__(entry)
        self._whose = whose(about)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: object) -> None:
        """May be called twice: by whoever has waited long enough, and by the processor."""
        if not self._left:
            self._left = True
            super().shutdown(timeout_millis)

    def _initialize_channel_and_stub(self) -> None:
        super()._initialize_channel_and_stub()  # type: ignore[no-untyped-call]
        self._client = cast(Any, _Stub(cast(grpc.Channel, self._channel)))

    def _translate_data(self, data: Sequence[ReadableSpan]) -> Any:
        return request(self._whose, cast(Sequence[bytes], data))


class _Stub:
    """The library's, for requests that are on the wire's form already."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.Export: Any = channel.unary_unary(EXPORT, response_deserializer=ExportTraceServiceResponse.FromString)


Whose: TypeAlias = tuple[bytes, bytes]
"""What spans have in common that are of one process: of their resource, and of their scope."""


def request(whose: Whose, entries: Sequence[bytes]) -> bytes:
    """An ExportTraceServiceRequest: `resource_spans` (1), and in it `scope_spans` (2)."""
    resource, scope = whose
    return _field(b"\x0a", resource + _field(b"\x12", scope + b"".join(entries)))


def whose(about: Resource) -> Whose:
    span = Recorded(b"1" * 16, b"1" * 8, "-01", Form("", SpanKind.INTERNAL, {}), None, (), {}, id)
    found = encode_spans([readable(span, about)]).resource_spans[0]
    scope = found.scope_spans[0]
    scope.ClearField("spans")
    encoded = scope.SerializeToString()
    found.ClearField("scope_spans")
    return found.SerializeToString(), encoded


def entry(span: Recorded) -> bytes:
    """A span as one of the field `spans` (2)."""
    parent = span.parent
    own = (
        *(b"\x0a\x10", span.trace_id, b"\x12\x08", span.span_id, b"\x39", span.start_time, b"\x41", span.end_time),
        *(b"\x85\x01", _flags(span.rest[:3], parent is not None and parent.remote)),
    )
    parts = [BELOW.pack(*own, b"\x22\x08", parent.span_id) if parent else FIRST.pack(*own), _blank(span.form)]
    parts += [_id(name, value) if name.endswith(".id") else _fact(name, value) for name, value in span.facts.items()]
    if span.failed or span.links or span.state:
        parts.append(_rare(span))
    return _field(b"\x12", b"".join(parts))


@lru_cache(maxsize=1024)
def _flags(rest: str, remote: object) -> int:
    """Those of W3C, and whether its parent, or what it is linked to, is of another process."""
    return int(rest[1:3], 16) | (REMOTE if remote else KNOWN)


@lru_cache(maxsize=1024)
def _blank(form: Form) -> bytes:
    blank = trace_pb2.Span(name=form.name, kind=trace_pb2.Span.SpanKind.Value(f"SPAN_KIND_{form.kind.name}"))
    return blank.SerializeToString() + b"".join(_fact(name, value) for name, value in form.facts.items())


@lru_cache(maxsize=4096, typed=True)
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
    encoded = str(value).encode()
    return _before(name, len(encoded)) + encoded


@lru_cache(maxsize=256)
def _before(name: str, length: int) -> bytes:
    return _fact(name, "x" * length)[:-length]


def _rare(span: Recorded) -> bytes:
    rest = trace_pb2.Span(trace_state=span.state, dropped_links_count=max(0, len(span.links) - MAX_LINKS))
    if span.failed:
        rest.status.code = trace_pb2.Status.STATUS_CODE_ERROR
    return b"".join((rest.SerializeToString(), *map(_link, span.links[:MAX_LINKS])))


def _link(to: Reference) -> bytes:
    return LINK.pack(b"\x6a\x21\x0a\x10", to.trace_id, b"\x12\x08", to.span_id, b"\x35", _flags(to.rest[:3], to.remote))


def _field(tag: bytes, content: bytes) -> bytes:
    return _before_field(tag, len(content)) + content


@lru_cache(maxsize=4096)
def _before_field(tag: bytes, length: int) -> bytes:
    """The length is a varint."""
    found = bytearray(tag)
    while length > 0x7F:
        found.append(length & 0x7F | 0x80)
        length >>= 7
    found.append(length)
    return bytes(found)
