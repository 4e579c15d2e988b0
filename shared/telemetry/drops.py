"""Spans that nobody will be told of, because their collector takes none or too few: counted, and said once a minute and
at the end.
"""

from collections.abc import Sequence
from typing import Any

import structlog
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter, SpanExportResult

from shared.telemetry import metrics

log = structlog.get_logger()

INTERVAL = 60.0  # seconds between two lines


class Drops:
    """Of one exporter. Each of the counts has one thread that writes it."""

    def __init__(self) -> None:
        self._ended = 0
        self._unkept = 0
        self._taken = 0
        self._untaken = 0
        self._told = 0

    def ended(self, *, kept: bool) -> None:
        """One, where spans end. Not kept: there was no room for it, or for an older one."""
        self._ended += 1
        if not kept:
            self._unkept += 1
            metrics.DROPPED.add(1, "QUEUE_FULL")

    def exported(self, count: int, *, taken: bool) -> None:
        """Where they are exported."""
        if taken:
            self._taken += count
        else:
            self._untaken += count
            metrics.DROPPED.add(count, "NOT_TAKEN")

    def tell(self) -> None:
        self._tell(self._unkept + self._untaken)

    def tell_last(self) -> None:
        """At the end also what still waits, or is being exported: nobody waits for that any more."""
        self._tell(self._ended - self._taken)

    def _tell(self, lost: int) -> None:
        count = lost - self._told
        if count > 0:
            self._told += count
            log.warning("traces.dropped", count=count)


class Counting(SpanExporter):
    """What an exporter of the library does, counted."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.drops = Drops()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = SpanExportResult.FAILURE
        try:
            result = super().export(spans)
        finally:
            self.drops.exported(len(spans), taken=result is SpanExportResult.SUCCESS)
        return result


class Console(Counting, ConsoleSpanExporter):
    """Lines on standard output."""


class Queue(BatchSpanProcessor):
    """What waits to be exported. The library keeps what it drops to itself, or warns of each."""

    def __init__(self, exporter: Counting, size: int | None) -> None:
        super().__init__(exporter, max_queue_size=size)
        self.exporter = exporter
        self.drops = exporter.drops
        self._waiting = self._batch_processor._queue

    def on_end(self, span: ReadableSpan) -> None:
        self.drops.ended(kept=len(self._waiting) != self._waiting.maxlen)
        super().on_end(span)
