"""Spans that nobody will be told of, because their collector takes none or too few: counted, and said once a minute."""

import structlog
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from shared.telemetry import metrics

log = structlog.get_logger()

INTERVAL = 60.0  # seconds between two lines


class Drops:
    """Each of the counts has one thread that writes it."""

    def __init__(self) -> None:
        self._unkept = 0
        self._untaken = 0
        self._told = 0

    def unkept(self) -> None:
        """One, where spans end: there was no room for it."""
        self._unkept += 1
        metrics.DROPPED.add(1, "QUEUE_FULL")

    def untaken(self, count: int) -> None:
        """Where they are exported."""
        self._untaken += count
        metrics.DROPPED.add(count, "NOT_TAKEN")

    async def tell(self) -> float:
        count = self._unkept + self._untaken - self._told
        if count:
            self._told += count
            log.warning("traces.dropped", count=count)
        return INTERVAL


class Queue(BatchSpanProcessor):
    """What waits to be exported. The library keeps what it drops to itself, or warns of each."""

    def __init__(self, exporter: SpanExporter, size: int | None, drops: Drops) -> None:
        super().__init__(exporter, max_queue_size=size)
        self._drops = drops
        self._waiting = self._batch_processor._queue

    def on_end(self, span: ReadableSpan) -> None:
        if len(self._waiting) == self._waiting.maxlen:
            self._drops.unkept()
        super().on_end(span)
