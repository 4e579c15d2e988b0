"""How metrics leave a process: pushed by OTLP, scraped by Prometheus, or printed; none of them unless OTEL_* says so.

Counters and gauges are observable instruments, whose values the SDK asks for. It has no such histogram, so ours are
added to what a reader receives: by the method that readers are there to override.
"""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.sdk.environment_variables import OTEL_EXPORTER_PROMETHEUS_HOST, OTEL_EXPORTER_PROMETHEUS_PORT
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    ConsoleMetricExporter,
    HistogramDataPoint,
    Metric,
    MetricReader,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramPoints
from opentelemetry.sdk.resources import Resource

from shared.telemetry.environment import CONSOLE, OTLP, exporters
from shared.telemetry.metrics import METRICS, Counter, Gauge, Histogram, listen

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

log = structlog.get_logger()

SCOPE = "notifyqueue"
PROMETHEUS = "prometheus"
FLUSH = 3.0  # seconds that a process waits for its last values to be told
BEGUN = time.time_ns()


class Whole:
    """A reader that receives our histograms with everything else."""

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **more: Any) -> None:
        whole = with_histograms(metrics_data)
        super()._receive_metrics(whole, timeout_millis=timeout_millis, **more)  # type: ignore[misc]


class Pushed(Whole, PeriodicExportingMetricReader):
    pass


def with_histograms(data: MetricsData) -> MetricsData:
    """Always cumulative, whatever temporality is asked for."""
    now = time.time_ns()
    ours = [_points(metric, now) for metric in METRICS if isinstance(metric, Histogram)]
    found = list(data.resource_metrics)
    for place, resource in enumerate(found):
        scopes = list(resource.scope_metrics)
        for number, scope in enumerate(scopes):
            if scope.scope.name == SCOPE:
                scopes[number] = replace(scope, metrics=[*scope.metrics, *(one for one in ours if one)])
                found[place] = replace(resource, scope_metrics=scopes)
    return replace(data, resource_metrics=found)


def _points(metric: Histogram, now: int) -> Metric | None:
    points = [
        HistogramDataPoint(
            attributes=dict(metric.labels(attributes)),
            start_time_unix_nano=BEGUN,
            time_unix_nano=now,
            count=int(sum(cell[:-1])),
            sum=cell[-1],
            bucket_counts=[int(count) for count in cell[:-1]],
            explicit_bounds=[float(bound) for bound in metric.bounds],
            min=None,  # type: ignore[arg-type]  # nobody asks, and it would be kept for each value
            max=None,  # type: ignore[arg-type]
        )
        for attributes, cell in metric.values().items()
    ]
    data = HistogramPoints(points, AggregationTemporality.CUMULATIVE)
    return Metric(metric.name, metric.means, metric.unit, data) if points else None


@asynccontextmanager
async def exported(about: Resource) -> AsyncIterator[None]:
    """Metrics go where OTEL_METRICS_EXPORTER says: `otlp`, `prometheus`, `console`, or several of them.

    Leaving waits at most FLUSH for the last of them.
    """
    names = exporters("METRICS", tuple(MAKERS))
    if not names:
        yield
        return
    async with AsyncExitStack() as stack:
        readers = [reader for name in names if (reader := _reader(name, stack))]
        if readers:
            await _provide(about, readers, stack)
        yield


def _reader(name: str, stack: AsyncExitStack) -> MetricReader | None:
    """None where the variables are no use to it: nobody does without notifications for that."""
    try:
        return MAKERS[name](stack)
    except Exception as error:
        log.error("metrics.unusable", exporter=name, exc_info=error)
        return None


async def _provide(about: Resource, readers: Sequence[MetricReader], stack: AsyncExitStack) -> None:
    """Likewise: then the readers end at once."""
    try:
        provider = stack.enter_context(provided(about, readers))
    except Exception as error:
        log.error("metrics.unusable", exc_info=error)
        for reader in readers:
            with suppress(Exception):
                await asyncio.to_thread(reader.shutdown)
        await stack.aclose()
        return
    stack.push_async_callback(_shut_down, provider)
    log.info("metrics.started", exporters=len(readers))


async def _shut_down(provider: MeterProvider) -> None:
    """In a thread of its own, which a process does not wait for."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def shut_down() -> None:
        with suppress(Exception):  # the library raises what a reader could not do in time
            provider.shutdown(timeout_millis=FLUSH * 1000)
        with suppress(RuntimeError):  # nobody waits any more
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=shut_down, name="metrics", daemon=True).start()
    try:
        async with asyncio.timeout(FLUSH):
            await done.wait()
    except TimeoutError:
        log.warning("metrics.lost")


@contextmanager
def provided(resource: Resource, readers: Iterable[MetricReader]) -> Iterator[MeterProvider]:
    provider = MeterProvider(list(readers), resource, shutdown_on_exit=False)
    meter = provider.get_meter(SCOPE)
    for metric in METRICS:
        _instrument(meter, metric)
    listen(on=True)
    try:
        yield provider
    finally:
        listen(on=False)


def _instrument(meter: Meter, metric: Counter | Gauge | Histogram) -> None:
    if isinstance(metric, Histogram):
        return

    def look(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(value, metric.labels(key)) for key, value in metric.values().items()]

    make = meter.create_observable_counter if isinstance(metric, Counter) else meter.create_observable_gauge
    make(metric.name, [look], metric.unit, metric.means)


# Each imports what it needs: a process that pushes nothing need not load grpc's exporter.


def _otlp(_: AsyncExitStack) -> MetricReader:
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

    return Pushed(OTLPMetricExporter())


def _console(_: AsyncExitStack) -> MetricReader:
    return Pushed(ConsoleMetricExporter())


def _prometheus(stack: AsyncExitStack) -> MetricReader | None:
    """At OTEL_EXPORTER_PROMETHEUS_HOST and _PORT."""
    from prometheus_client import CollectorRegistry, start_http_server

    host = os.environ.get(OTEL_EXPORTER_PROMETHEUS_HOST) or "localhost"
    registry = CollectorRegistry()
    try:
        port = int(os.environ.get(OTEL_EXPORTER_PROMETHEUS_PORT) or 9464)
        server, _ = start_http_server(port, host, registry)
    except (OSError, ValueError, OverflowError) as error:  # somebody else's port stops nobody from sending
        log.error("metrics.unserved", setting=OTEL_EXPORTER_PROMETHEUS_PORT, exc_info=error)
        return None
    stack.callback(server.server_close)
    stack.push_async_callback(asyncio.to_thread, server.shutdown)
    return scraped(registry)


def scraped(registry: "CollectorRegistry") -> MetricReader:
    """Reads for whoever reads the registry."""
    from opentelemetry.exporter.prometheus import PrometheusMetricReader

    class Scraped(Whole, PrometheusMetricReader):
        pass

    return Scraped(scope_info_enabled=False, registry=registry)


MAKERS: dict[str, Callable[[AsyncExitStack], MetricReader | None]] = {
    OTLP: _otlp,
    CONSOLE: _console,
    PROMETHEUS: _prometheus,
}
