"""What is traced of a webhook: each post, below the attempt that ended its notification. Never its URL."""

from opentelemetry.trace import SpanKind

from services.dispatcher.delivery import Delivery
from services.dispatcher.outcome import Answer
from shared.telemetry import traces
from shared.telemetry.forms import Fact, Form
from shared.telemetry.spans import NOBODYS, Span

POST = Form("POST", SpanKind.CLIENT, {"http.request.method": "POST"})


def post(delivery: Delivery) -> Span:
    if not traces.on():
        return NOBODYS
    parent, links = traces.origin(delivery.trace_context, recent=delivery.recent)
    facts: dict[str, Fact] = {
        "notifyqueue.delivery.id": str(delivery.id),
        "notifyqueue.endpoint.id": str(delivery.endpoint_id),
        "notifyqueue.event.id": str(delivery.event_id),
    }
    if delivery.attempt > 1:
        facts["http.request.resend_count"] = delivery.attempt - 1
    return traces.start(POST, parent=parent, links=links, facts=facts)


def answered(span: Span, answer: Answer) -> None:
    if not span.recorded:
        return
    if answer.status is not None:
        span.set("http.response.status_code", answer.status)
    if answer.error is not None:
        span.fail(str(answer.status or answer.error))
