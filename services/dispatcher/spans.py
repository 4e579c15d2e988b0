"""What is traced of a webhook: each post, below the attempt that ended its notification. Never its URL."""

from opentelemetry import trace
from opentelemetry.trace import INVALID_SPAN, SpanKind

from services.dispatcher.delivery import Delivery
from services.dispatcher.outcome import Answer
from shared.telemetry import traces
from shared.telemetry.forms import Form

POST = Form("POST", SpanKind.CLIENT, {"http.request.method": "POST"})


def post(delivery: Delivery) -> trace.Span:
    if not traces.on():
        return INVALID_SPAN
    parent, links = traces.origin(delivery.trace_context, recent=delivery.recent)
    span = traces.start(POST, parent=parent, links=links)
    if span.is_recording():
        span.set_attributes(
            {
                "notifyqueue.delivery.id": str(delivery.id),
                "notifyqueue.endpoint.id": str(delivery.endpoint_id),
                "notifyqueue.event.id": str(delivery.event_id),
            }
        )
        if delivery.attempt > 1:
            span.set_attribute("http.request.resend_count", delivery.attempt - 1)
    return span


def answered(span: trace.Span, answer: Answer) -> None:
    if not span.is_recording():
        return
    if answer.status is not None:
        span.set_attribute("http.response.status_code", answer.status)
    if answer.error is not None:
        traces.fail(span, str(answer.status or answer.error))
