"""Spans, as they end."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan

from shared.telemetry import traces
from shared.telemetry.spans import Recorded
from shared.telemetry.tracer import Tracer, readable

ABOUT = Resource({"service.name": "test"})


class Told:
    """What a collector would be told of."""

    def __init__(self) -> None:
        self.spans: list[Recorded] = []

    def __call__(self, span: Recorded) -> None:
        self.spans.append(span)

    def by_name(self) -> dict[str, dict[str, Any]]:
        return {span.form.name: {**span.form.facts, **span.facts} for span in self.spans}

    def readable(self) -> list[ReadableSpan]:
        return [readable(span, ABOUT) for span in self.spans]

    def lines(self) -> list[str]:
        return [str(span.to_json()) for span in self.readable()]


@contextmanager
def told() -> Iterator[Told]:
    """What is told while it lasts."""
    found, tracer = Told(), Tracer(ABOUT)
    tracer.told = found
    with traces.made_by(tracer):
        yield found
