"""What becomes of a delivery, whatever the endpoint answered."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.dispatcher.outcome import BUSY, LONGEST_GUESS, Answer, ErrorClass, GiveUpReason, Verdict, judge
from services.dispatcher.schedule import DELAYS, JITTER, Schedule

MOST = 10
SCHEDULE = Schedule()
STATUSES = st.integers(100, 599)
ERRORS = st.sampled_from([error for error in ErrorClass if error is not ErrorClass.STATUS])
WAITS = st.timedeltas(timedelta(), timedelta(hours=24))


def answers() -> st.SearchStrategy[Answer]:
    return st.builds(Answer.of_status, STATUSES, WAITS) | st.builds(Answer, error=ERRORS)


@given(status=st.integers(200, 299), attempt=st.integers(1, MOST))
def test_2xx_is_delivered_at_any_attempt(status: int, attempt: int) -> None:
    assert judge(Answer.of_status(status, timedelta(hours=1)), attempt, MOST, SCHEDULE) == Verdict(delivered=True)


@given(answer=answers(), attempt=st.integers(1, MOST + 5))
def test_a_delivery_ends_in_exactly_one_way(answer: Answer, attempt: int) -> None:
    verdict = judge(answer, attempt, MOST, SCHEDULE)
    assert [verdict.delivered, verdict.give_up_reason is not None, verdict.delay is not None].count(True) == 1
    assert verdict.delivered == (answer.status is not None and 200 <= answer.status <= 299)


@given(attempt=st.integers(1, MOST), wait=WAITS)
def test_410_gives_up_at_once_and_pauses_nothing(attempt: int, wait: timedelta) -> None:
    verdict = judge(Answer.of_status(410, wait), attempt, MOST, SCHEDULE)
    assert verdict == Verdict(give_up_reason=GiveUpReason.GONE)


@pytest.mark.parametrize(
    "status", [100, 199, 300, 301, 302, 303, 304, 307, 308, 400, 401, 404, 409, 422, 500, 501, 599]
)
def test_other_answers_are_tried_again_and_move_only_their_delivery(status: int) -> None:
    verdict = judge(Answer.of_status(status), 2, MOST, SCHEDULE)
    assert (verdict.delivered, verdict.give_up_reason, verdict.pause) == (False, None, None)


@given(answer=answers(), attempt=st.integers(1, MOST - 1))
def test_a_retry_comes_by_the_schedule_and_never_before_what_was_asked_for(answer: Answer, attempt: int) -> None:
    verdict = judge(answer, attempt, MOST, SCHEDULE)
    if verdict.delay is not None:
        assert verdict.delay >= max(DELAYS[attempt] * (1 - JITTER), answer.retry_after)
        assert verdict.delay <= max(DELAYS[attempt] * (1 + JITTER), answer.retry_after)


@given(
    answer=answers().filter(lambda answer: answer.error and answer.status != 410), attempt=st.integers(MOST, MOST + 9)
)
def test_after_the_last_attempt_it_is_given_up_as_exhausted(answer: Answer, attempt: int) -> None:
    assert judge(answer, attempt, MOST, SCHEDULE).give_up_reason is GiveUpReason.EXHAUSTED


@given(status=STATUSES.filter(lambda status: status != 410 and not 200 <= status <= 299), wait=WAITS.filter(bool))
def test_retry_after_pauses_the_endpoint_for_as_long_as_it_says(status: int, wait: timedelta) -> None:
    assert judge(Answer.of_status(status, wait), 1, MOST, SCHEDULE).pause == wait


@given(status=st.sampled_from(sorted(BUSY)), attempt=st.integers(1, MOST + 1))
def test_a_busy_answer_pauses_the_endpoint_without_being_told_for_how_long(status: int, attempt: int) -> None:
    pause = judge(Answer.of_status(status), attempt, MOST, SCHEDULE).pause
    assert pause is not None
    assert timedelta() < pause <= LONGEST_GUESS


@given(error=ERRORS, attempt=st.integers(1, MOST))
def test_what_never_arrived_pauses_nothing(error: ErrorClass, attempt: int) -> None:
    assert judge(Answer(error=error), attempt, MOST, SCHEDULE).pause is None
