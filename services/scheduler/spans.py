"""What is traced of accepting: that a notification was put in the queue. What becomes of it hangs on this span."""

from functools import cache
from uuid import UUID

from opentelemetry.trace import SpanKind

from shared.telemetry import traces
from shared.telemetry.forms import Form
from shared.telemetry.spans import NOBODYS, Span


def send(channel: str) -> Span:
    return traces.below(_form(channel)) if traces.on() else NOBODYS


def sent(span: Span, notification_id: UUID, *, replayed: bool) -> None:
    if span.recorded:
        span.set("messaging.message.id", str(notification_id))
        span.set("notifyqueue.replayed", replayed)


@cache
def _form(channel: str) -> Form:
    facts = {
        "messaging.system": "notifyqueue",
        "messaging.destination.name": channel,
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
    }
    return Form(f"send {channel}", SpanKind.PRODUCER, facts)
