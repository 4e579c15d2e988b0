"""Spans, as they end."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from shared.telemetry import traces
from shared.telemetry.spans import Span, Tracer


class Told(SpanProcessor):
    """What a collector would be told of."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(cast(Span, span))

    def by_name(self) -> dict[str, dict[str, Any]]:
        return {span.form.name: {**span.form.facts, **span.facts} for span in self.spans}


@contextmanager
def told() -> Iterator[Told]:
    """What is told while it lasts."""
    found = Told()
    with traces.made_by(Tracer(found, Resource({"service.name": "test"}))):
        yield found
