"""What a provider's answers in a row say about the provider."""

from collections.abc import Iterable
from itertools import cycle
from uuid import UUID, uuid4

import pytest

from services.worker.breaker import FAILURES, MAX_DEAD_ADDRESSES, MISCONFIGURED_NOTIFICATIONS, WINDOW, Breaker, Pace
from services.worker.providers import Answer, Outcome

A, B, C = (UUID(int=number) for number in (1, 2, 3))


def trips(breaker: Breaker, answers: Iterable[tuple[UUID, Answer]]) -> bool:
    found = [breaker.trips(id_, answer) for id_, answer in answers]  # all of them count
    return any(found)


@pytest.mark.parametrize("answer", [Answer.TRANSIENT, Answer.UNKNOWN])
def test_five_failures_in_a_row_of_three_notifications_are_the_providers(answer: Answer) -> None:
    breaker = Breaker()
    ids = cycle((A, B, C))
    assert not trips(breaker, [(next(ids), answer) for _ in range(FAILURES - 1)])
    assert breaker.trips(next(ids), answer)


def test_two_notifications_that_always_fail_do_not_stop_the_others() -> None:
    ids = cycle((A, B))
    assert not trips(Breaker(), [(next(ids), Answer.TRANSIENT) for _ in range(50)])


@pytest.mark.parametrize("answer", [Answer.ACCEPTED, Answer.PERMANENT_MESSAGE, Answer.PERMANENT_ADDRESS])
def test_any_real_answer_ends_the_row(answer: Answer) -> None:
    breaker = Breaker()
    four = [(id_, Answer.TRANSIENT) for id_ in (A, B, C, A)]
    assert not trips(breaker, [*four, (B, answer), *four])
    assert breaker.trips(B, Answer.TRANSIENT)


def test_throttling_is_an_answer_of_its_own_and_neither_ends_nor_lengthens_the_row() -> None:
    breaker = Breaker()
    four = [(id_, Answer.TRANSIENT) for id_ in (A, B, C, A)]
    assert not trips(breaker, [*four, *[(uuid4(), Answer.THROTTLED) for _ in range(10)]])
    assert breaker.trips(B, Answer.TRANSIENT)


def test_three_different_notifications_find_it_misconfigured() -> None:
    breaker = Breaker()
    assert MISCONFIGURED_NOTIFICATIONS == 3
    assert not trips(breaker, [(A, Answer.MISCONFIGURED)] * 5)
    assert not breaker.trips(B, Answer.MISCONFIGURED)
    assert not breaker.trips(uuid4(), Answer.PERMANENT_MESSAGE)  # only what was accepted proves it configured
    assert breaker.trips(C, Answer.MISCONFIGURED)


def test_what_was_accepted_proves_it_configured() -> None:
    found = [(A, Answer.MISCONFIGURED), (B, Answer.MISCONFIGURED), (A, Answer.ACCEPTED), (C, Answer.MISCONFIGURED)]
    assert not trips(Breaker(), found)


def test_a_fifth_of_dead_addresses_is_believed_and_more_is_our_own_fault() -> None:
    breaker = Breaker()
    dead, fine = Outcome(Answer.PERMANENT_ADDRESS, "550"), Outcome(Answer.ACCEPTED)
    for number in range(WINDOW - 1):
        assert breaker.weigh(dead if number < MAX_DEAD_ADDRESSES else fine).answer is not Answer.MISCONFIGURED
    assert breaker.weigh(fine) == fine
    assert breaker.weigh(dead) == dead  # the oldest has left: still a fifth of the last hundred
    for _ in range(WINDOW):
        breaker.weigh(fine)
    answers = [breaker.weigh(dead) for _ in range(MAX_DEAD_ADDRESSES + 2)]
    assert answers == [dead] * MAX_DEAD_ADDRESSES + [Outcome(Answer.MISCONFIGURED, "550")] * 2


def test_few_outcomes_say_nothing_about_a_list() -> None:
    breaker = Breaker()
    dead = Outcome(Answer.PERMANENT_ADDRESS, "550")
    assert [breaker.weigh(dead) for _ in range(WINDOW - 1)] == [dead] * (WINDOW - 1)
    assert breaker.weigh(dead).answer is Answer.MISCONFIGURED


def test_a_pace_is_halved_and_regained_one_by_one() -> None:
    pace = Pace(8)
    pace.slow_down()
    assert pace.limit == 4
    for _ in range(3):
        pace.accept()
    assert pace.limit == 4
    pace.accept()
    assert pace.limit == 5
    for _ in range(100):
        pace.accept()
    assert pace.limit == 8
    for _ in range(10):
        pace.slow_down()
    assert pace.limit == 1


def test_opt_outs_are_no_dead_addresses() -> None:
    breaker, stop = Breaker(), Outcome(Answer.PERMANENT_ADDRESS, "400-21610", opted_out=True)
    assert [breaker.weigh(stop) for _ in range(2 * WINDOW)] == [stop] * (2 * WINDOW)
