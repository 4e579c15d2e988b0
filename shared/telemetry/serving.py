"""The server's span of each RPC, by a layer: what a rich error is, is known only once all the others have ended."""

import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from functools import cache

import grpc
from opentelemetry.trace import SpanKind

from shared.layers import Call
from shared.telemetry import traces
from shared.telemetry.forms import Form


@contextlib.asynccontextmanager
async def traced(call: Call) -> AsyncIterator[None]:
    """One span, below the caller's."""
    headers = _headers(call.context.invocation_metadata() or ())
    with traces.start(_form(call.method), parent=traces.received(headers)) as span:
        try:
            yield
        finally:
            span.set("rpc.status_code", call.code.name)
            # UNIMPLEMENTED, too, as the conventions for RPC have it of a server's span.
            if call.fault or call.code is grpc.StatusCode.UNIMPLEMENTED:
                span.fail(call.code.name)
            span.end()  # before whoever ends it sees an exception


def _headers(metadata: Iterable[tuple[str, str | bytes]]) -> Mapping[str, str]:
    """One that comes several times is one list, as W3C has it: a `tracestate` is one, a `traceparent` is none then."""
    found: dict[str, str] = {}
    for name, value in metadata:
        if name in traces.HEADERS:
            found[name] = f"{found[name]},{value!s}" if name in found else str(value)
    return found


@cache
def _form(method: str) -> Form:
    return Form(method, SpanKind.SERVER, {"rpc.system.name": "grpc", "rpc.method": method})
