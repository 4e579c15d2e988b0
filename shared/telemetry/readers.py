"""How metrics leave a process: pushed by OTLP, scraped by Prometheus, or printed; none of them unless OTEL_* says so.

Counters and gauges are observable instruments, whose values the SDK asks for. It has no such histogram, so ours are
added to what a reader receives: by the method that readers are there to override.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    ConsoleMetricExporter,
    HistogramDataPoint,
    InMemoryMetricReader,
    Metric,
    MetricReader,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramPoints
from opentelemetry.sdk.resources import Resource

from shared.telemetry.metrics import METRICS, Counter, Gauge, Histogram, listen

SCOPE = "notifyqueue"
FLUSH = 3_000  # milliseconds that a process gives to its last values
BEGUN = time.time_ns()


class _Whole:
    """A reader that receives our histograms with everything else."""

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **more: Any) -> None:
        whole = with_histograms(metrics_data)
        super()._receive_metrics(whole, timeout_millis=timeout_millis, **more)  # type: ignore[misc]


class Pushed(_Whole, PeriodicExportingMetricReader):
    pass


class Looked(_Whole, InMemoryMetricReader):
    """For tests."""


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


@contextmanager
def exporting(resource: Resource) -> Iterator[None]:
    """As OTEL_METRICS_EXPORTER says: `otlp`, `prometheus`, `console`, several of them, or `none`, which is the default
    here. Leaving takes time: it sends what is left.
    """
    names = [name.strip() for name in os.environ.get("OTEL_METRICS_EXPORTER", "").split(",")]
    chosen = [name for name in names if name not in ("", "none")]
    if not chosen or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        yield
        return
    with ExitStack() as stack:
        readers = [MAKERS[name](stack) for name in chosen]
        stack.enter_context(provided(resource, readers))
        yield


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
        provider.shutdown(timeout_millis=FLUSH)
        listen(on=False)


def _instrument(meter: Meter, metric: Counter | Gauge | Histogram) -> None:
    if isinstance(metric, Histogram):
        return

    def look(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(value, metric.labels(key)) for key, value in metric.values().items()]

    make = meter.create_observable_counter if isinstance(metric, Counter) else meter.create_observable_gauge
    make(metric.name, [look], metric.unit, metric.means)


# Each imports what it needs: a process that pushes nothing need not load grpc's exporter.


def _otlp(_: ExitStack) -> MetricReader:
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

    return Pushed(OTLPMetricExporter())


def _console(_: ExitStack) -> MetricReader:
    return Pushed(ConsoleMetricExporter())


def _prometheus(stack: ExitStack) -> MetricReader:
    """At OTEL_EXPORTER_PROMETHEUS_HOST and _PORT."""
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from prometheus_client import CollectorRegistry, start_http_server

    class Scraped(_Whole, PrometheusMetricReader):
        pass

    host = os.environ.get("OTEL_EXPORTER_PROMETHEUS_HOST") or "localhost"
    port = int(os.environ.get("OTEL_EXPORTER_PROMETHEUS_PORT") or 9464)
    registry = CollectorRegistry()
    reader = Scraped(scope_info_enabled=False, registry=registry)
    server, thread = start_http_server(port, host, registry)
    stack.callback(thread.join)
    stack.callback(server.server_close)
    stack.callback(server.shutdown)
    return reader


MAKERS: dict[str, Callable[[ExitStack], MetricReader]] = {
    "otlp": _otlp,
    "console": _console,
    "prometheus": _prometheus,
}
