"""Spans that nobody will be told of, because their collector takes none or too few: counted, and said once a minute and
at the end.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import structlog
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter, SpanExportResult

from shared.telemetry import metrics
from shared.telemetry.spans import Recorded
from shared.telemetry.tracer import readable

log = structlog.get_logger()

INTERVAL = 60.0  # seconds between two lines
GATHERED = 0.02  # seconds: some hundred spans of a worker that does all it can, and less than a millisecond's work


class Drops:
    """Of one exporter. Each of the counts has one thread that writes it."""

    def __init__(self) -> None:
        self._ended = 0
        self._unkept = 0
        self._taken = 0
        self._untaken = 0
        self._told = 0

    def ended(self, count: int) -> None:
        self._ended += count

    def unkept(self, count: int, reason: str) -> None:
        """Of those that have ended."""
        if count > 0:
            self._unkept += count
            metrics.DROPPED.add(count, reason)

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

    def __init__(self, prepare: Callable[[Recorded], Any], **settings: Any) -> None:
        """`prepare` gives a span the form in which it waits to be exported."""
        super().__init__(**settings)
        self.prepare = prepare
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

    def __init__(self, about: Resource) -> None:
        super().__init__(partial(readable, resource=about), formatter=lambda span: f"{span.to_json(indent=None)}\n")


class Queue(BatchSpanProcessor):
    """What waits to be exported. The library keeps what it drops to itself, or warns of each."""

    def __init__(self, exporter: Counting, size: int | None) -> None:
        super().__init__(exporter, max_queue_size=size)
        self.exporter = exporter
        self.drops = exporter.drops
        self._waiting = self._batch_processor._queue
        self._ended: list[Recorded] = []
        self._loop = asyncio.get_running_loop()

    def told(self, span: Recorded) -> None:
        """Of one that has ended. They are prepared many at a time: between all else that a worker does, each would take
        three times as long.
        """
        if not self._ended:
            if self._loop.is_closed():
                return  # as of what is only finalised then
            self._loop.call_later(GATHERED, self.flush)
        self._ended.append(span)

    def flush(self) -> None:
        """What has ended waits to be exported from now on. What an export takes in this very instant may be counted as
        dropped.
        """
        spans, self._ended = self._ended, []
        prepared = self._prepared(spans)
        self.drops.ended(len(spans))
        self.drops.unkept(len(spans) - len(prepared), "UNENCODABLE")
        self.drops.unkept(len(self._waiting) + len(prepared) - self._batch_processor._max_queue_size, "QUEUE_FULL")
        if prepared:
            self._waiting.extendleft(prepared[:-1])
            self._batch_processor.emit(prepared[-1])  # which wakes whoever exports

    def _prepared(self, spans: Sequence[Recorded]) -> Sequence[Any]:
        """Without those that cannot be: they take no other with them."""
        found = []
        failed: Exception | None = None
        for span in spans:
            try:
                found.append(self.exporter.prepare(span))
            except Exception as error:
                failed = error
        if failed:
            log.error("traces.unencodable", exc_info=failed)
        return found
