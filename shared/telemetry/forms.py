"""What the spans of one kind have in common: named wherever something may be traced, so nothing is loaded for it."""

from collections.abc import Mapping
from dataclasses import dataclass

from opentelemetry.trace import SpanKind

Fact = str | int | bool
NO_FACTS: Mapping[str, Fact] = {}


@dataclass(frozen=True, eq=False, slots=True)
class Form:
    """There are few, and each is made once."""

    name: str
    kind: SpanKind
    facts: Mapping[str, Fact]
