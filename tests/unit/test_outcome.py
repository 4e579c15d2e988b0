"""What becomes of a notification after an attempt."""

import random
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.worker.claim import ExpiredClaim, Held
from services.worker.outcome import (
    MAX_NOT_BEFORE,
    Ended,
    Later,
    Sent,
    Verdict,
    content_erased,
    expired,
    judge,
    judge_expired,
    unstarted,
)
from services.worker.providers import Answer, Outcome
from shared.backoff import Backoff

BACKOFF = Backoff(timedelta(seconds=2), timedelta(minutes=15), random.Random(0))
NOBODY = UUID(int=0)
AGAIN = [Answer.TRANSIENT, Answer.MISCONFIGURED, Answer.THROTTLED, Answer.UNKNOWN]


def held(
    number: int = 1,
    max_attempts: int = 5,
    *,
    at_most_once: bool = False,
    reconciled: bool = False,
    maybe_delivered: bool = False,
    time_left: timedelta | None = None,
) -> Held:
    return Held(NOBODY, NOBODY, "EMAIL", number, max_attempts, at_most_once, reconciled, maybe_delivered, time_left)


def lost(claim: Held, *, started: bool) -> ExpiredClaim:
    fields = {name: getattr(claim, name) for name in Held.__slots__}
    return ExpiredClaim(**fields, worker_id=NOBODY, started=started)


def judged(answer: Answer, claim: Held, not_before: timedelta = timedelta()) -> Verdict:
    return judge(claim, Outcome(answer, code="x", not_before=not_before), BACKOFF)


def test_accepted_is_sent() -> None:
    outcome = Outcome(Answer.ACCEPTED, provider_message_id="m")
    assert judge(held(), outcome, BACKOFF) == Sent(provider_message_id="m")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(Answer.PERMANENT_MESSAGE, "MESSAGE_REJECTED"), (Answer.PERMANENT_ADDRESS, "ADDRESS_REJECTED")],
)
def test_a_refusal_is_final_on_the_first_attempt(answer: Answer, reason: str) -> None:
    suppresses = "BOUNCED" if answer is Answer.PERMANENT_ADDRESS else None
    assert judged(answer, held()) == Ended(reason=reason, kind="ATTEMPT_FAILED", code="x", suppresses=suppresses)


def test_an_opt_out_that_the_provider_tells_of_ends_it_as_one() -> None:
    outcome = Outcome(Answer.PERMANENT_ADDRESS, "400-21610", opted_out=True)
    told = Ended(reason="OPTED_OUT", kind="ATTEMPT_FAILED", code="400-21610", suppresses="OPTED_OUT")
    assert judge(held(), outcome, BACKOFF) == told
    assert judge(held(maybe_delivered=True), outcome, BACKOFF) == replace(told, reason="OUTCOME_UNKNOWN")


@pytest.mark.parametrize("answer", AGAIN)
def test_what_may_still_work_is_tried_again(answer: Answer) -> None:
    verdict = judged(answer, held())
    assert isinstance(verdict, Later)
    assert verdict.kind == ("ATTEMPT_UNKNOWN" if answer is Answer.UNKNOWN else "ATTEMPT_FAILED")


@pytest.mark.parametrize("answer", [Answer.TRANSIENT, Answer.MISCONFIGURED])
def test_the_last_attempt_is_dead_lettered(answer: Answer) -> None:
    assert judged(answer, held(5, 5)) == Ended(reason="ATTEMPTS_EXHAUSTED", kind="ATTEMPT_FAILED", code="x")


def test_throttling_is_refunded_even_on_the_last_attempt() -> None:
    verdict = judged(Answer.THROTTLED, held(5, 5))
    assert isinstance(verdict, Later)
    assert verdict.refunded


def test_an_unknown_outcome_at_the_cap_is_reconciled_once() -> None:
    first = judged(Answer.UNKNOWN, held(5, 5))
    assert isinstance(first, Later)
    assert first.reconciled
    second = judged(Answer.UNKNOWN, held(6, 6, reconciled=True))
    assert second == Ended(reason="ATTEMPTS_EXHAUSTED", kind="ATTEMPT_UNKNOWN", code="x")


def test_a_failure_after_the_reconciliation_is_dead_lettered() -> None:
    verdict = judged(Answer.TRANSIENT, held(6, 6, reconciled=True, maybe_delivered=True))
    assert verdict == Ended(reason="ATTEMPTS_EXHAUSTED", kind="ATTEMPT_FAILED", code="x")


def test_at_most_once_ends_where_it_may_have_been_delivered() -> None:
    verdict = judged(Answer.UNKNOWN, held(at_most_once=True))
    assert verdict == Ended(reason="OUTCOME_UNKNOWN", kind="ATTEMPT_UNKNOWN", code="x")


def test_at_most_once_is_tried_again_where_nothing_was_delivered() -> None:
    assert isinstance(judged(Answer.TRANSIENT, held(at_most_once=True)), Later)


@pytest.mark.parametrize(
    ("answer", "maybe_delivered", "reason"),
    [
        (Answer.TRANSIENT, False, None),
        (Answer.THROTTLED, False, None),
        (Answer.TRANSIENT, True, "OUTCOME_UNKNOWN"),
        (Answer.UNKNOWN, False, "OUTCOME_UNKNOWN"),
    ],
)
def test_a_retry_that_would_come_too_late_ends_it(answer: Answer, maybe_delivered: bool, reason: str | None) -> None:
    verdict = judged(answer, held(maybe_delivered=maybe_delivered, time_left=timedelta(milliseconds=1)))
    assert isinstance(verdict, Ended)
    assert verdict.reason == reason


def test_what_expired_before_its_call_does_not_count() -> None:
    assert expired(held()) == Ended(reason=None, kind=None)
    assert expired(held(maybe_delivered=True)) == Ended(reason="OUTCOME_UNKNOWN", kind=None)
    assert content_erased() == Ended(reason="CONTENT_ERASED", kind=None)


def test_what_was_not_started_goes_back_refunded() -> None:
    assert unstarted(held(), timedelta(seconds=5)) == Later(delay=timedelta(seconds=5), kind=None, refunded=True)
    assert unstarted(held(time_left=timedelta(seconds=1)), timedelta(seconds=5)) == Ended(reason=None, kind=None)


def test_an_expired_claim_is_an_attempt_without_an_answer() -> None:
    verdict = judge_expired(lost(held(), started=False), BACKOFF)
    assert isinstance(verdict, Later)
    assert (verdict.kind, verdict.refunded) == ("ATTEMPT_UNKNOWN", False)


def test_a_worker_lost_on_the_reconciliation_is_named_as_the_reason() -> None:
    verdict = judge_expired(lost(held(6, 6, reconciled=True), started=False), BACKOFF)
    assert isinstance(verdict, Ended)
    assert verdict.reason == "WORKER_LOST"


def test_an_expired_claim_under_at_most_once_goes_back_only_if_no_call_was_made() -> None:
    claim = held(at_most_once=True)
    assert judge_expired(lost(claim, started=False), BACKOFF) == Later(delay=timedelta(), kind=None, refunded=True)
    ended = judge_expired(lost(claim, started=True), BACKOFF)
    assert isinstance(ended, Ended)
    assert ended.reason == "OUTCOME_UNKNOWN"


@given(
    st.sampled_from(AGAIN),
    st.integers(1, 5),
    st.timedeltas(timedelta(), timedelta(days=3)),
    st.none() | st.timedeltas(timedelta(microseconds=1), timedelta(days=3)),
)
def test_a_retry_is_never_sooner_than_asked_nor_later_than_it_is_worth(
    answer: Answer, number: int, not_before: timedelta, time_left: timedelta | None
) -> None:
    verdict = judged(answer, held(number, 6, time_left=time_left), not_before)
    if isinstance(verdict, Later):
        assert verdict.delay >= min(not_before, MAX_NOT_BEFORE)
        assert verdict.delay >= min(BACKOFF.base * 2 ** (number - 1), BACKOFF.cap) / 2
        assert time_left is None or verdict.delay < time_left


@given(st.lists(st.sampled_from([Answer.TRANSIENT, Answer.MISCONFIGURED, Answer.UNKNOWN]), min_size=12, max_size=12))
def test_nothing_that_counts_goes_on_for_ever(answers: list[Answer]) -> None:
    claim = held(1, 3)
    for made, answer in enumerate(answers, start=1):
        verdict = judged(answer, claim)
        if isinstance(verdict, Ended):
            assert made <= 4
            return
        assert isinstance(verdict, Later)
        reconciled = claim.reconciled or verdict.reconciled
        claim = held(claim.number + 1, claim.max_attempts + verdict.reconciled, reconciled=reconciled)
    pytest.fail("it went on")


@pytest.mark.parametrize("answer", [Answer.TRANSIENT, Answer.MISCONFIGURED])
def test_a_failure_costs_nothing_while_its_provider_is_given_up(answer: Answer) -> None:
    verdict = judge(held(5), Outcome(answer, code="x"), BACKOFF, given_up=True)
    assert isinstance(verdict, Later)
    assert verdict.refunded
    assert verdict.delay >= timedelta(seconds=1)


def test_what_may_have_been_delivered_counts_also_while_its_provider_is_given_up() -> None:
    assert judge(held(5, reconciled=True), Outcome(Answer.UNKNOWN), BACKOFF, given_up=True) == Ended(
        reason="ATTEMPTS_EXHAUSTED", kind="ATTEMPT_UNKNOWN"
    )
