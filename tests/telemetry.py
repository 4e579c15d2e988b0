"""What a process measures, as whoever collects it sees it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Self

import grpc.aio
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.resources import Resource

from shared.telemetry.metrics import Counter, Gauge, Histogram
from shared.telemetry.readers import Whole, provided

Metric = Counter | Gauge | Histogram
Labels = frozenset[tuple[str, str]]


class Reader(Whole, InMemoryMetricReader):
    """Looks when it is asked."""

    def read(self, metric: Metric) -> Mapping[Labels, float]:
        """By attributes; of a histogram how many values it has."""
        data = self.get_metrics_data()
        found: dict[Labels, float] = {}
        for resource in data.resource_metrics if data else ():
            for one in (one for scope in resource.scope_metrics for one in scope.metrics if one.name == metric.name):
                for point in one.data.data_points:
                    labels = frozenset((name, str(value)) for name, value in (point.attributes or {}).items())
                    found[labels] = _value(point)
        return found

    def value(self, metric: Metric, *attributes: str) -> float:
        """0 where there is none."""
        return self.read(metric).get(frozenset(metric.labels(attributes).items()), 0)


def _value(point: object) -> float:
    if isinstance(point, HistogramDataPoint):
        return point.count
    assert isinstance(point, NumberDataPoint)
    return point.value


@contextmanager
def reading() -> Iterator[Reader]:
    """What is measured meanwhile. Services that read the database for it must begin within."""
    reader = Reader()
    with provided(Resource.get_empty(), [reader]) as provider:
        try:
            yield reader
        finally:
            provider.shutdown()


class Otlp(grpc.GenericRpcHandler):
    """Takes whatever is pushed to it by OTLP, traces and metrics, as the bytes that came."""

    def __init__(self) -> None:
        self.traces: list[bytes] = []
        self.metrics: list[bytes] = []

    async def __aenter__(self) -> Self:
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((self,))
        self.endpoint = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(0)

    def service(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        kept = self.metrics if "metrics" in details.method else self.traces

        async def take(request: bytes, _: object) -> bytes:
            kept.append(request)
            return b""

        return grpc.unary_unary_rpc_method_handler(take)

    def measured(self) -> set[str]:
        """The names of the metrics that came."""
        return {
            metric.name
            for request in map(ExportMetricsServiceRequest.FromString, self.metrics)
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }
