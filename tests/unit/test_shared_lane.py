"""What a worker knows of a lane that all share: what it wants to write, and what it believes meanwhile."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from services.worker import shared_lane
from services.worker.breaker import WINDOW
from services.worker.claim import Claim
from services.worker.providers import Answer, Outcome
from services.worker.shared_lane import Change, Close, DelayProbe, Hold, LaneFacts, Open, Probe, SharedLane

RUNS = LaneFacts("EMAIL", paused=False, opening=0, open=False, probe_in=0, held_for=0)
IS_OPEN = replace(RUNS, opening=1, open=True, probe_in=5)
CLOSED = replace(RUNS, opening=1)
DOWN = Outcome(Answer.TRANSIENT, "451")
PROBE = Probe(1, UUID(int=7))


LATER = 1e9  # than whatever happens to the lane in a test


class Clock:
    now = 1000.0


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(shared_lane, "tick", lambda: clock.now)
    return clock


@pytest.fixture
def lane(clock: Clock) -> SharedLane:
    lane = SharedLane("EMAIL", 64)
    lane.apply(RUNS)
    return lane


def claim(number: int, asked_at: float = 1000.0) -> Claim:
    return Claim(
        UUID(int=number),
        UUID(int=0),
        "EMAIL",
        1,
        5,
        False,
        False,
        False,
        None,
        address="",
        content={},
        expiries=0,
        asked_at=asked_at,
        tenant_id="default",
        limited=False,
    )


def see(lane: SharedLane, answer: Answer, *numbers: int, probe: Probe | None = None) -> list[Change]:
    for number in numbers:
        lane.observe(claim(number, LATER), Outcome(answer, "451"), probe=probe)
    return lane.take_changes()


def test_nothing_is_claimed_before_the_row_was_read() -> None:
    lane = SharedLane("EMAIL", 64)
    assert lane.paused
    assert lane.apply(RUNS)
    assert not lane.paused


def test_a_row_of_failures_opens_it(lane: SharedLane) -> None:
    assert see(lane, Answer.TRANSIENT, 1, 2, 3, 4) == []
    lane.observe(claim(5), DOWN, probe=None)
    assert lane.open
    assert lane.probe_in is None  # not before all know
    assert lane.take_changes() == [Open(0, "451")]


def test_a_row_that_another_worker_opened_is_over_here_too(lane: SharedLane) -> None:
    see(lane, Answer.TRANSIENT, 1, 2, 3, 4)
    assert lane.apply(IS_OPEN)
    lane.apply(CLOSED)
    assert see(lane, Answer.TRANSIENT, 5) == []


def test_while_it_is_open_nothing_is_counted_towards_another_opening(lane: SharedLane) -> None:
    lane.apply(IS_OPEN)
    assert see(lane, Answer.TRANSIENT, 1, 2, 3, 4, 5, 6) == []


def test_what_began_before_it_was_closed_says_nothing_about_the_provider_of_now(lane: SharedLane, clock: Clock) -> None:
    lane.apply(IS_OPEN)
    see(lane, Answer.ACCEPTED, 9, probe=PROBE)
    clock.now += 10
    lane.apply(CLOSED)
    for number in range(10):
        lane.observe(claim(number, clock.now - 5), DOWN, probe=None)
    assert lane.take_changes() == []
    assert see(lane, Answer.TRANSIENT, 1, 2, 3, 4, 5) == [Open(1, "451")]


def test_what_it_wants_to_write_is_believed_until_it_was_read(lane: SharedLane) -> None:
    for number in range(5):
        lane.observe(claim(number), DOWN, probe=None)
    lane.apply(RUNS)  # read before the change was written
    assert lane.open
    lane.put_back(lane.take_changes())
    lane.apply(RUNS)
    assert lane.open
    lane.take_changes()
    assert lane.open
    assert lane.apply(IS_OPEN)
    assert lane.probe_in is not None
    lane.apply(CLOSED)
    assert not lane.open


def test_its_own_hold_holds_while_it_is_written_and_slows_down_once(lane: SharedLane, clock: Clock) -> None:
    clock.now += 10
    lane.observe(claim(1), Outcome(Answer.THROTTLED, not_before=timedelta(seconds=30)), probe=None)
    lane.take_changes()
    assert lane.held_for == 30
    lane.apply(replace(RUNS, held_for=29.0))
    assert (lane.held_for, lane.pace.limit) == (29, 32)
    lane.apply(RUNS)  # somebody has ended it
    assert lane.held_for <= 0


@pytest.mark.parametrize("answer", [Answer.ACCEPTED, Answer.PERMANENT_MESSAGE, Answer.PERMANENT_ADDRESS])
def test_any_real_answer_to_a_probe_closes_it(lane: SharedLane, answer: Answer) -> None:
    lane.apply(IS_OPEN)
    assert see(lane, answer, 1, probe=PROBE) == [Close(PROBE)]


@pytest.mark.parametrize("answer", [Answer.TRANSIENT, Answer.UNKNOWN, Answer.MISCONFIGURED])
def test_a_probe_that_fails_delays_the_next(lane: SharedLane, answer: Answer) -> None:
    lane.apply(IS_OPEN)
    assert see(lane, answer, 1, probe=PROBE) == [DelayProbe(PROBE)]


def test_a_worker_whose_probe_failed_lets_the_others_go_first(lane: SharedLane) -> None:
    lane.apply(IS_OPEN)
    assert lane.probe_in == 5
    see(lane, Answer.UNKNOWN, 1, probe=PROBE)
    lane.apply(replace(IS_OPEN, probe_in=10))
    assert lane.probe_in == 11
    lane.delay_probe(60)
    assert lane.probe_in == 60


def test_a_list_with_more_than_a_fifth_of_dead_addresses_opens_it_for_our_own_fault(lane: SharedLane) -> None:
    see(lane, Answer.ACCEPTED, *range(WINDOW))
    outcomes = [lane.observe(claim(n), Outcome(Answer.PERMANENT_ADDRESS, "550"), probe=None) for n in range(23)]
    assert [outcome.answer for outcome in outcomes[19:]] == [Answer.PERMANENT_ADDRESS, *[Answer.MISCONFIGURED] * 3]
    assert lane.take_changes() == [Open(0, "550")]


def test_throttling_holds_for_a_second_at_least_and_a_day_at_most_and_slows_down_once(lane: SharedLane) -> None:
    lane.observe(claim(1), Outcome(Answer.THROTTLED), probe=None)
    assert lane.held_for == 1
    lane.observe(claim(2), Outcome(Answer.THROTTLED, not_before=timedelta(days=400)), probe=None)
    assert lane.held_for == 86_400
    assert lane.pace.limit == 32


def test_many_that_are_throttled_at_once_are_one_hold(lane: SharedLane, clock: Clock) -> None:
    for number in range(1000):
        lane.observe(claim(number), Outcome(Answer.THROTTLED, not_before=timedelta(seconds=30)), probe=None)
    (hold,) = lane.take_changes()
    assert isinstance(hold, Hold)
    clock.now += 10  # written late, it ends when it was to end
    assert hold.span == timedelta(seconds=20)


def test_a_hold_that_another_worker_met_holds_and_slows_down_here_too(lane: SharedLane, clock: Clock) -> None:
    clock.now += 10
    lane.apply(replace(RUNS, held_for=30.0))
    assert lane.held_for == 30
    assert lane.pace.limit == 32
    clock.now += 1
    lane.apply(replace(RUNS, held_for=29.0))
    assert lane.pace.limit == 32


def test_a_hold_that_is_taken_back_is_over_here_too(lane: SharedLane) -> None:
    lane.apply(replace(RUNS, held_for=30.0))
    lane.apply(RUNS)
    assert lane.held_for <= 0


def test_one_that_is_always_throttled_comes_less_and_less_often(lane: SharedLane) -> None:
    waits = [lane.observe(claim(1), Outcome(Answer.THROTTLED), probe=None).not_before for _ in range(8)]
    assert waits[-1] >= timedelta(minutes=1)
    see(lane, Answer.ACCEPTED, 1)
    assert lane.observe(claim(1), Outcome(Answer.THROTTLED), probe=None).not_before <= timedelta(seconds=1)


def test_what_is_accepted_gives_the_pace_back(lane: SharedLane) -> None:
    lane.observe(claim(1), Outcome(Answer.THROTTLED), probe=None)
    see(lane, Answer.ACCEPTED, *range(100))
    assert lane.pace.limit > 32


def test_a_worker_that_fails_where_others_are_answered_holds_only_itself(lane: SharedLane, clock: Clock) -> None:
    lane.apply(IS_OPEN)
    lane.apply(CLOSED)  # not by us
    assert see(lane, Answer.TRANSIENT, 1, 2, 3, 4, 5) == []
    assert not lane.open
    assert (lane.held_for, lane.pace.limit) == (5, 1)
    clock.now += 5
    assert see(lane, Answer.TRANSIENT, 6) == []
    assert lane.held_for == 10
    for _ in range(10):
        clock.now += 60
        see(lane, Answer.TRANSIENT, 7)
    assert lane.held_for == 60
    lane.apply(replace(IS_OPEN, opening=2, probe_in=0))
    assert lane.probe_in is None  # the probes are for those who may be answered
    clock.now += 60
    lane.apply(replace(RUNS, opening=2))
    see(lane, Answer.ACCEPTED, 8)
    assert lane.held_for <= 0
    assert see(lane, Answer.TRANSIENT, 1, 2, 3, 4, 5) == [Open(2, "451")]


def test_a_worker_whose_own_probe_closed_it_opens_it_again(lane: SharedLane) -> None:
    lane.apply(IS_OPEN)
    see(lane, Answer.PERMANENT_MESSAGE, 9, probe=PROBE)
    lane.apply(CLOSED)
    assert see(lane, Answer.TRANSIENT, 1, 2, 3, 4, 5) == [Open(1, "451")]


def test_a_change_calls_for_the_heartbeat(lane: SharedLane) -> None:
    called = []
    lane.on_change = lambda: called.append(True)
    lane.observe(claim(1), Outcome(Answer.THROTTLED), probe=None)
    assert called


def test_what_a_worker_lacks_opens_the_breaker_once_and_nothing_is_claimed() -> None:
    lane = SharedLane("SMS", 64, unfit="TWILIO_SENDER-missing")
    lane.apply(replace(RUNS, opening=3))
    assert lane.take_changes() == [Open(3, "TWILIO_SENDER-missing")]
    lane.apply(IS_OPEN)
    lane.apply(CLOSED)  # by a worker that has it
    assert lane.take_changes() == []
    assert (lane.paused, lane.fit) == (True, False)


def test_a_breaker_that_is_open_already_keeps_its_cause() -> None:
    lane = SharedLane("SMS", 64, unfit="TWILIO_SENDER-missing")
    lane.apply(IS_OPEN)
    lane.apply(CLOSED)
    assert lane.take_changes() == []
