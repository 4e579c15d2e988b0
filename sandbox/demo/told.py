"""What the services tell of the day, where OTEL_TRACES_EXPORTER=console asks to see it: the trace of one notification.

Each process has a console of its own, so they tell a collector of the demo's, and the demo draws what it was told.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc.aio
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation import grpc as instrumentation
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from sandbox.collector import Collector, tree

EXPORTER = "OTEL_TRACES_EXPORTER"


@dataclass(frozen=True, slots=True)
class Told:
    """`interceptors` are those of the shop's program, with which a trace begins there."""

    collector: Collector | None = None
    interceptors: Sequence[grpc.aio.ClientInterceptor] = ()

    def tree(self, notification_id: str) -> list[str]:
        if self.collector is None:
            return []
        found = tree(self.collector.about(notification_id), times=True)
        return ["", f"the trace of {notification_id}", "", *(f"  {line}" for line in found), ""]


@asynccontextmanager
async def told() -> AsyncIterator[Told]:
    """To be left when the services have ended, for each tells the last of it then."""
    if os.environ.get(EXPORTER, "").strip().lower() != "console":
        yield Told()
        return
    async with Collector() as collector:
        os.environ |= {EXPORTER: "otlp", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": collector.endpoint}  # of the services
        provider = TracerProvider(resource=Resource.create({"service.name": "shop"}), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=collector.endpoint)))
        try:
            yield Told(collector, instrumentation.aio_client_interceptors(provider))  # type: ignore[no-untyped-call]
        finally:
            await asyncio.to_thread(provider.shutdown)
