"""What becomes of a notification after an attempt. Pure: no I/O, no clock."""

from dataclasses import dataclass, replace
from datetime import timedelta

from services.worker.claim import ExpiredClaim, Held
from services.worker.providers import Answer, Outcome
from shared.backoff import Backoff
from shared.suppression import BOUNCED, OPTED_OUT

MAX_NOT_BEFORE = timedelta(hours=24)

# What costs a notification nothing while its provider fails all of them. An answer that never came may hide a delivery,
# and is counted, so that nothing is delivered again and again.
PROVIDERS_FAULT = frozenset({Answer.TRANSIENT, Answer.MISCONFIGURED})

FAILED_ATTEMPT = "ATTEMPT_FAILED"
UNKNOWN_ATTEMPT = "ATTEMPT_UNKNOWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    provider_message_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """It ends without being sent. `reason` None: it expired. `kind` None: no call was made."""

    reason: str | None
    kind: str | None
    code: str | None = None
    suppresses: str | None = None
    """As what its address is suppressed from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """It goes back to PENDING. `kind` None: no call was made."""

    delay: timedelta
    kind: str | None
    code: str | None = None
    refunded: bool = False
    reconciled: bool = False


Verdict = Sent | Ended | Later


def judge(held: Held, outcome: Outcome, backoff: Backoff, *, given_up: bool = False) -> Verdict:
    """The verdict on an attempt that ended like this. `given_up` says that the provider fails, whatever it is sent."""
    match outcome.answer:
        case Answer.ACCEPTED:
            return Sent(provider_message_id=outcome.provider_message_id)
        case Answer.PERMANENT_MESSAGE:
            return Ended(reason="MESSAGE_REJECTED", kind=FAILED_ATTEMPT, code=outcome.code)
        case Answer.PERMANENT_ADDRESS if outcome.opted_out:
            told = suppressed(held, OPTED_OUT)
            return replace(told, kind=FAILED_ATTEMPT, code=outcome.code, suppresses=OPTED_OUT)
        case Answer.PERMANENT_ADDRESS:
            return Ended(reason="ADDRESS_REJECTED", kind=FAILED_ATTEMPT, code=outcome.code, suppresses=BOUNCED)
        case _:
            spared = (given_up and outcome.answer in PROVIDERS_FAULT) or outcome.answer is Answer.THROTTLED
            return _again(held, outcome, backoff, exhausted="ATTEMPTS_EXHAUSTED", refunded=spared)


def judge_expired(claim: ExpiredClaim, backoff: Backoff) -> Verdict:
    """The verdict on a claim whose lease passed: an attempt without an answer, unless no call can have been made."""
    if claim.at_most_once and not claim.started:
        return unstarted(claim)
    return _again(claim, Outcome(Answer.UNKNOWN, code="lease_expired"), backoff, exhausted="WORKER_LOST")


def unstarted(held: Held, delay: timedelta = timedelta()) -> Verdict:
    """The verdict where no call was made: it does not count."""
    if held.time_left is not None and held.time_left <= delay:
        return expired(held)
    return Later(delay=delay, kind=None, refunded=True)


def expired(held: Held) -> Ended:
    """The verdict on what ran out of time before this attempt's call. One that may have been delivered did not expire:
    nobody knows.
    """
    return Ended(reason="OUTCOME_UNKNOWN" if held.maybe_delivered else None, kind=None)


def suppressed(held: Held, reason: str) -> Ended:
    """The verdict on what must not be sent, before this attempt's call. SUPPRESSED says that nothing was: where an
    earlier attempt may have delivered it, nobody knows, as when it runs out of time.
    """
    return Ended(reason="OUTCOME_UNKNOWN" if held.maybe_delivered else reason, kind=None)


def content_erased() -> Ended:
    return Ended(reason="CONTENT_ERASED", kind=None)


def _again(held: Held, outcome: Outcome, backoff: Backoff, *, exhausted: str, refunded: bool = False) -> Verdict:
    """Neither taken nor refused: another attempt, if it may have one and it would come in time."""
    unknown = outcome.answer is Answer.UNKNOWN
    kind = UNKNOWN_ATTEMPT if unknown else FAILED_ATTEMPT
    if unknown and held.at_most_once:
        return Ended(reason="OUTCOME_UNKNOWN", kind=kind, code=outcome.code)

    delay = max(backoff.delay(held.number), min(outcome.not_before, MAX_NOT_BEFORE))
    reconciled = unknown and held.number >= held.max_attempts and not held.reconciled
    if not (refunded or reconciled or held.number < held.max_attempts):
        return Ended(reason=exhausted, kind=kind, code=outcome.code)
    if held.time_left is not None and held.time_left <= delay:
        maybe_delivered = unknown or held.maybe_delivered
        return Ended(reason="OUTCOME_UNKNOWN" if maybe_delivered else None, kind=kind, code=outcome.code)
    return Later(delay=delay, kind=kind, code=outcome.code, refunded=refunded, reconciled=reconciled)
