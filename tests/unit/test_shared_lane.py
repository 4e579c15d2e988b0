"""What a worker knows of a lane that all share: what it wants to write, and what it believes meanwhile."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from services.worker.claim import Held
from services.worker.providers import Answer, Outcome
from services.worker.shared_lane import Change, Close, DelayProbe, Hold, LaneFacts, Open, SharedLane

RUNS = LaneFacts("EMAIL", paused=False, opening=0, open=False, probe_in=0, held_for=0)
IS_OPEN = replace(RUNS, opening=1, open=True, probe_in=5)
DOWN = Outcome(Answer.TRANSIENT, "451")


def held(number: int) -> Held:
    return Held(UUID(int=number), UUID(int=0), "EMAIL", 1, 5, False, False, False, None)


@pytest.fixture
def lane() -> SharedLane:
    lane = SharedLane("EMAIL", 64)
    lane.apply(RUNS)
    return lane


def fail(lane: SharedLane, *numbers: int) -> list[Change]:
    for number in numbers:
        lane.observe(held(number), DOWN, probe=None)
    return lane.take_changes()


def test_nothing_is_claimed_before_the_row_was_read() -> None:
    lane = SharedLane("EMAIL", 64)
    assert lane.paused
    assert lane.apply(RUNS)
    assert not lane.paused


def test_a_row_of_failures_opens_it(lane: SharedLane) -> None:
    assert fail(lane, 1, 2, 3, 4) == []
    assert fail(lane, 5) == [Open("451")]
    assert lane.open
    assert lane.probe_in is None  # not before all know


def test_a_row_that_another_worker_opened_is_over_here_too(lane: SharedLane) -> None:
    fail(lane, 1, 2, 3, 4)
    assert lane.apply(IS_OPEN)
    lane.apply(replace(RUNS, opening=1))
    assert fail(lane, 5) == []


def test_while_it_is_open_nothing_is_counted_towards_another_opening(lane: SharedLane) -> None:
    lane.apply(IS_OPEN)
    assert fail(lane, 1, 2, 3, 4, 5, 6) == []
    lane.apply(replace(RUNS, opening=1))
    assert fail(lane, 1, 2, 3, 4) == []


def test_what_it_wants_to_write_is_believed_until_it_was_written(lane: SharedLane) -> None:
    fail(lane, 1, 2, 3, 4)
    lane.observe(held(5), DOWN, probe=None)
    assert not lane.apply(RUNS)  # read before the change was written
    assert lane.open
    lane.put_back(lane.take_changes())
    lane.apply(RUNS)
    assert lane.open
    lane.take_changes()
    assert lane.apply(IS_OPEN)
    assert lane.probe_in is not None


@pytest.mark.parametrize("answer", [Answer.ACCEPTED, Answer.PERMANENT_MESSAGE, Answer.PERMANENT_ADDRESS])
def test_any_real_answer_to_a_probe_closes_it(lane: SharedLane, answer: Answer) -> None:
    lane.apply(IS_OPEN)
    lane.observe(held(1), Outcome(answer), probe=1)
    assert lane.take_changes() == [Close(1)]


@pytest.mark.parametrize("answer", [Answer.TRANSIENT, Answer.UNKNOWN, Answer.MISCONFIGURED])
def test_a_probe_that_fails_delays_the_next(lane: SharedLane, answer: Answer) -> None:
    lane.apply(IS_OPEN)
    lane.observe(held(1), Outcome(answer), probe=1)
    assert lane.take_changes() == [DelayProbe(1)]


def test_throttling_holds_for_a_second_at_least_and_a_day_at_most_and_slows_down_once(lane: SharedLane) -> None:
    lane.observe(held(1), Outcome(Answer.THROTTLED), probe=None)
    lane.observe(held(2), Outcome(Answer.THROTTLED, not_before=timedelta(days=400)), probe=None)
    assert lane.take_changes() == [Hold(timedelta(seconds=1)), Hold(timedelta(days=1))]
    assert lane.held_for > 86_000
    assert lane.pace.limit == 32


def test_a_hold_that_another_worker_met_holds_and_slows_down_here_too(lane: SharedLane) -> None:
    lane.apply(replace(RUNS, held_for=30.0))
    assert 29 < lane.held_for <= 30
    assert lane.pace.limit == 32
    lane.apply(replace(RUNS, held_for=29.0))
    assert lane.pace.limit == 32


def test_a_change_calls_for_the_heartbeat(lane: SharedLane) -> None:
    called = []
    lane.on_change = lambda: called.append(True)
    lane.observe(held(1), Outcome(Answer.THROTTLED), probe=None)
    assert called
