"""A trace that begins at the command line: where the extra `tracing` is there, and the variables of OpenTelemetry ask.

`TRACEPARENT` is whoever called this program, as other programs hand it on.
"""

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec

import grpc.aio

PATIENCE = 3.0  # seconds for a collector, when all else is done
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def interceptors() -> Sequence[grpc.aio.ClientInterceptor]:
    """For each call; none where nobody asks, so that nothing more is imported, and none where that cannot be done."""
    if not _asked() or not _installed():
        return ()
    try:
        return _made()
    except Exception as error:  # a package that is missing, a variable that is no use: nobody does without the command
        print(f"notifyqueue: not traced: {type(error).__name__}: {error}", file=sys.stderr)
        return ()


def _made() -> Sequence[grpc.aio.ClientInterceptor]:
    from opentelemetry import context
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.instrumentation import grpc as instrumentation
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    about = {"service.name": os.environ.get("OTEL_SERVICE_NAME") or "notifyqueue-cli"}
    provider = TracerProvider(resource=Resource.create(about))  # tells the last of it when the program ends
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=PATIENCE)))
    context.attach(TraceContextTextMapPropagator().extract({"traceparent": os.environ.get("TRACEPARENT", "")}))
    found: Sequence[grpc.aio.ClientInterceptor] = instrumentation.aio_client_interceptors(provider)  # type: ignore[no-untyped-call]
    return found


def _asked() -> bool:
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = os.environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    return exporter == "otlp" or (not exporter and any(os.environ.get(name) for name in ENDPOINTS))


def _installed() -> bool:
    return all(find_spec(name) for name in ("opentelemetry", "opentelemetry.sdk", "opentelemetry.instrumentation"))
