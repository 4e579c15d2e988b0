"""Rates: what two signs of life of the same worker differ by, and nothing else."""

from notifyqueue import Channel, Notification
from notifyqueue.cli.rates import Backlogs, Ends, Rate, Rates
from notifyqueue.v1.scheduler_pb2 import LaneStats, LiveWorker

EMAIL, SMS = Channel.CHANNEL_EMAIL, Channel.CHANNEL_SMS


def worker(id_: str, at: float, **sent: int) -> LiveWorker:
    found = LiveWorker(worker_id=id_)
    found.heartbeat_time.FromNanoseconds(int(at * 1e9))
    for name, count in sent.items():
        found.lanes.add(channel=Channel.Value(f"CHANNEL_{name.upper()}"), sent=count, unsent=count // 10)
    return found


def test_a_first_look_has_no_rate() -> None:
    assert Rates().look([worker("a", 0, email=1_000)]) == {}


def test_a_rate_is_the_sum_over_the_workers() -> None:
    rates = Rates()
    rates.look([worker("a", 0, email=0, sms=0), worker("b", 1, email=500)])
    found = rates.look([worker("a", 2, email=100, sms=20), worker("b", 5, email=900)])
    assert found == {EMAIL: Rate(50 + 100, 5 + 10), SMS: Rate(10, 1)}


def test_between_two_signs_of_life_the_rate_stays() -> None:
    rates = Rates()
    rates.look([worker("a", 0, email=0)])
    first = rates.look([worker("a", 2, email=100)])
    assert rates.look([worker("a", 2, email=100)]) == first == {EMAIL: Rate(50, 5)}
    assert rates.look([worker("a", 4, email=100)]) == {EMAIL: Rate(0, 0)}


def test_a_worker_that_has_gone_counts_no_more_and_a_new_one_not_yet() -> None:
    rates = Rates()
    rates.look([worker("a", 0, email=0)])
    rates.look([worker("a", 1, email=10)])
    assert rates.look([worker("b", 2, email=5_000)]) == {}
    assert rates.look([worker("b", 3, email=5_010)]) == {EMAIL: Rate(10, 1)}


def lane(due: int, scheduled: int = 0, processing: int = 0, waiting: int = 0, *, more: bool = False) -> LaneStats:
    found = LaneStats(channel=EMAIL)
    found.waiting.count = waiting
    found.due.count, found.scheduled.count, found.processing.count = due, scheduled, processing
    found.due.at_least = more
    return found


def test_a_backlog_grows_by_all_that_has_not_ended() -> None:
    backlogs = Backlogs()
    assert backlogs.look([lane(10)], 100.0) == {}
    assert backlogs.look([lane(15, 10, 5, 10)], 102.0) == {EMAIL: 15.0}
    assert backlogs.look([lane(0)], 106.0) == {EMAIL: -10.0}


def test_of_a_backlog_that_was_not_counted_to_its_end_nothing_is_known() -> None:
    backlogs = Backlogs()
    backlogs.look([lane(10_000, more=True)], 0.0)
    assert backlogs.look([lane(9_000)], 1.0) == {}
    assert backlogs.look([lane(10_000, more=True)], 2.0) == {}


def ended(sent: int, failed: int = 0, *, more: bool = False) -> LaneStats:
    found = LaneStats(channel=EMAIL)
    for status, count in ((Notification.STATUS_SENT, sent), (Notification.STATUS_FAILED, failed)):
        total = found.totals.add(status=status)
        total.count.count, total.count.at_least = count, more
    return found


def test_ends_a_second_are_what_the_totals_differ_by() -> None:
    ends = Ends()
    assert ends.look([ended(1_000, 10)], 100.0) == {}
    assert ends.look([ended(1_020, 13)], 102.0) == {EMAIL: Rate(10.0, 1.5)}
    assert ends.look([ended(5_000, more=True)], 103.0) == {}
    assert ends.look([ended(6_000)], 104.0) == {}
