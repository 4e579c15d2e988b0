"""What is traced of an attempt: itself, and below it the call to the provider. Ids, codes, and what settings name."""

from functools import cache
from urllib.parse import urlsplit

from opentelemetry.trace import SpanKind

from services.worker.claim import Claim, ExpiredClaim
from services.worker.measured import told_code
from services.worker.outcome import Ended, Later, Sent, Verdict
from services.worker.providers import Answer, Outcome
from shared import suppression
from shared.telemetry import traces
from shared.telemetry.forms import Fact, Form
from shared.telemetry.spans import NOBODYS, Span


def deliver(claim: Claim) -> Span:
    """An attempt, below whoever asked for the notification where that was a moment ago. After a redrive it is linked to
    that, too.
    """
    return _of(claim, _attempt(claim.channel)) if traces.on() else NOBODYS


def recover(claim: ExpiredClaim) -> Span:
    """Likewise, in place of an attempt whose worker was lost, and its span with it."""
    return _of(claim, _recovery(claim.channel)) if traces.on() else NOBODYS


def _of(claim: Claim | ExpiredClaim, form: Form) -> Span:
    parent, links = traces.origin(claim.trace_context, recent=claim.recent)
    if claim.last_trace_context and (redrive := traces.restored(claim.last_trace_context)):
        links = (*links, redrive)
    facts: dict[str, Fact] = {"messaging.message.id": str(claim.notification_id), "notifyqueue.attempt": claim.number}
    return traces.start(form, parent=parent, links=links, facts=facts)


def judged(span: Span, verdict: Verdict | None, provider: str = "") -> None:
    """What came of an attempt. None: it waits, or is not ours any more. Without a provider the code is our own."""
    if not span.recorded or verdict is None:
        return
    match verdict:
        case Sent():
            outcome, cause = "SENT", None
        case Ended(reason=None):
            outcome, cause = "EXPIRED", None
        case Ended(reason=reason) if reason in suppression.REASONS:
            outcome, cause = "SUPPRESSED", None
        case Ended(reason=reason, code=code):
            outcome, cause = reason or "", _told(provider, code) or reason
        case Later(kind=None):
            outcome, cause = "RELEASED", None
        case Later(code=code, kind=kind):
            outcome, cause = kind or "", _told(provider, code) or kind
    span.set("notifyqueue.outcome", outcome)
    if cause is not None:
        span.fail(cause)


def call(form: Form) -> Span:
    """A request to a provider."""
    return traces.below(form)


def answered(span: Span, outcome: Outcome, provider: str = "") -> None:
    """Likewise."""
    if span.recorded and outcome.answer is not Answer.ACCEPTED:
        span.fail(_told(provider, outcome.code) or outcome.answer)


def _told(provider: str, code: str | None) -> str | None:
    return told_code(provider, code) if provider else code


def replied(span: Span, status: int) -> None:
    span.set("http.response.status_code", status)
    if status >= 400:  # as a client sees it
        span.fail(str(status))


@cache
def http(url: str) -> Form:
    """Of the URL only the host: what follows may name an account."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    facts: dict[str, Fact] = {
        "http.request.method": "POST",
        "server.address": parts.hostname or "",
        "server.port": port,
    }
    return Form("POST", SpanKind.CLIENT, facts)


@cache
def smtp(host: str, port: int) -> Form:
    """OpenTelemetry has no names for mail, but for what any protocol has."""
    facts: dict[str, Fact] = {"network.protocol.name": "smtp", "server.address": host, "server.port": port}
    return Form("send mail", SpanKind.CLIENT, facts)


@cache
def rpc(method: str, target: str) -> Form:
    host, _, port = target.rpartition(":")
    facts: dict[str, Fact] = {"rpc.system.name": "grpc", "rpc.method": method, "server.address": host or target}
    return Form(method, SpanKind.CLIENT, facts | ({"server.port": int(port)} if port.isdecimal() else {}))


@cache
def _attempt(channel: str) -> Form:
    return Form(f"deliver {channel}", SpanKind.CONSUMER, _messaging(channel, "deliver", "process"))


@cache
def _recovery(channel: str) -> Form:
    return Form(f"recover {channel}", SpanKind.CLIENT, _messaging(channel, "recover", "settle"))


def _messaging(channel: str, name: str, kind: str) -> dict[str, Fact]:
    return {
        "messaging.system": "notifyqueue",
        "messaging.destination.name": channel,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
    }
