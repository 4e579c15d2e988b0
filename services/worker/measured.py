"""What a worker measures of its attempts, and as what."""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

import grpc

from services.worker.claim import Claim
from services.worker.outcome import Ended, Later, Sent, Verdict
from services.worker.providers import NUMBER, Outcome, fcm_codes, remote_codes, resend_codes, smtp_codes, twilio_codes
from services.worker.providers.unconfigured import missing
from services.worker.settings import Settings
from shared.clock import tick
from shared.telemetry import metrics

ANYTHING = ("*", "")
TOKEN = "token-"  # noqa: S105
REPLY = re.compile(r"(?P<status>\d{3})(-(?P<code>.+))?")

CODES: Mapping[str, Sequence[str]] = {
    "smtp": [row.status for row in smtp_codes.TABLE],
    "twilio": [row.code for row in twilio_codes.TABLE],
    "resend": [row.code for row in resend_codes.TABLE],
    "fcm": [row.code for row in (*fcm_codes.TABLE, *fcm_codes.TOKENS)],
    "mock": [],
}
"""What their tables list, as patterns, by the provider that says it."""
ELSEWHERE = frozenset(
    {"connect-failed", "connect-timeout", "message-malformed", "deadline", "adapter_error"}
    | {name.removeprefix("OUTCOME_") for name in remote_codes.ANSWERS}
    | {f"rpc.{status.name}" for status in grpc.StatusCode}
    | {missing(name.upper()) for name in Settings.model_fields}
)
"""What we say of a provider that somebody else has written; its own codes are as many as it likes."""


@lru_cache(maxsize=4096)
def shown_code(provider: str, code: str | None) -> str:
    """The code where its provider's table lists it, or where it is ours; else `other`."""
    if code is None:
        return "none"
    patterns = CODES.get(provider)
    if patterns is None:
        return code if code in ELSEWHERE else metrics.OTHER
    reply = REPLY.fullmatch(code.removeprefix(TOKEN))
    if reply is None or reply["code"] is None:
        return code
    listed = any(fnmatchcase(reply["code"], pattern) for pattern in patterns if pattern not in ANYTHING)
    return code if listed else metrics.OTHER


def told_code(provider: str, code: str | None) -> str | None:
    """What lines and spans say: of a code that is no table's a number, or the status at most. What a provider makes up
    may name anybody, and is only in the timeline.
    """
    if code is None or shown_code(provider, code) != metrics.OTHER:
        return code
    reply = REPLY.fullmatch(code)
    if reply is None:
        return metrics.OTHER
    return code if NUMBER.fullmatch(reply["code"] or "") else f"{reply['status']}-{metrics.OTHER}"


def claimed(channel: str, count: int, asked_at: float) -> None:
    metrics.CLAIM_TIME.record(tick() - asked_at, channel)
    metrics.CLAIMED.add(count, channel)


def called(claim: Claim, provider: str, outcome: Outcome, began: float) -> None:
    """An attempt whose call began at `began`, and has just ended."""
    if metrics.Metric.kept:
        since = "accepted" if claim.due_at_once else "due"
        metrics.LATENCY.record(claim.late_by + began - claim.asked_at, claim.channel, since)
        metrics.PROVIDER_TIME.record(tick() - began, provider, outcome.answer)
        code = shown_code(provider, outcome.code)
        metrics.OUTCOMES.add(1, claim.channel, provider, outcome.answer, code)


def unsent(channel: str, reason: str | None) -> None:
    metrics.UNSENT.add(1, channel, reason or "EXPIRED")


def recorded(channel: str, verdict: Verdict) -> None:
    match verdict:
        case Sent():
            pass  # the provider's outcomes count it
        case Ended(reason=reason):
            unsent(channel, reason)
        case Later(kind=str(kind)):
            metrics.RETRIES.add(1, channel, kind.removeprefix("ATTEMPT_"))
        case Later():
            metrics.RELEASED.add(1, channel)
