"""The demo's own judgement: whatever is wrong with a day, it names it, and says ok to nothing else."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from sandbox.demo.day import Played
from sandbox.demo.ledgers import Arrival, Ledgers
from sandbox.demo.story import ACTS, Act
from sandbox.demo.verdict import Rows, Verdict, judge, not_as_told

NEVER = next(act for act in ACTS if act.ends == "DEAD_LETTERED")
ORDERS = replace(ACTS[0], count=2)
FICKLE = next(act for act in ACTS if act.failures)


class Story:
    """Two acts that went well, until a test spoils something."""

    def __init__(self) -> None:
        self.played = [self._play(ORDERS, "a", "b"), self._play(replace(NEVER, count=1), "c")]
        self.refused = {"address": True}
        self.statuses = {"a": "SENT", "b": "SENT", "c": "DEAD_LETTERED"}
        self.events = Counter(("a", "b", "c"))
        self.arrived = [Arrival("mail+a@example.com", "a"), Arrival("phone+b", "b")]
        self.taken = Counter(("a", "b", "c"))
        self.failed_first = 3
        self.unverified = 0
        self.failures = {ORDERS.name: {0}, NEVER.name: {5}}

    @staticmethod
    def _play(act: Act, *ids: str) -> Played:
        return Played(act, set(ids), statuses=Counter({act.ends: act.count}))

    def verdict(self) -> Verdict:
        rows = Rows(self.statuses, self.events)
        ledgers = Ledgers(self.arrived, self.taken, self.failed_first, self.unverified)
        return judge(self.played, self.refused, rows, ledgers, self.failures)


def test_a_day_that_went_well_says_so_in_one_line() -> None:
    verdict = Story().verdict()
    assert verdict.problems == []
    assert verdict.line() == (
        "demo: ok accepted=3 sent=2 failed=0 dead_lettered=1 cancelled=0 expired=0 suppressed=0 webhooks=3 "
        "duplicates=0 lost=0"
    )


def _lose_a_mail(story: Story) -> None:
    del story.arrived[0]


def _double_a_mail(story: Story) -> None:
    story.arrived.append(story.arrived[0])


def _lose_a_webhook(story: Story) -> None:
    del story.taken["c"]


def _double_a_webhook(story: Story) -> None:
    story.taken["c"] += 1


def _lose_a_row(story: Story) -> None:
    del story.statuses["c"]


def _leave_one_open(story: Story) -> None:
    story.statuses["c"] = "PENDING"


def _write_two_events(story: Story) -> None:
    story.events["a"] += 1


def _write_no_event(story: Story) -> None:
    del story.events["a"]


def _deliver_what_failed(story: Story) -> None:
    story.arrived.append(Arrival("mail+c@example.com", "c"))


def _forge_a_webhook(story: Story) -> None:
    story.unverified = 1


def _spare_the_endpoint(story: Story) -> None:
    story.failed_first = 2


def _end_otherwise(story: Story) -> None:
    story.played[0].statuses = Counter({"SENT": 1, "FAILED": 1})


def _replay_what_was_new(story: Story) -> None:
    story.played[0].replays = 1


def _accept_what_is_bad(story: Story) -> None:
    story.refused["address"] = False


def _spare_the_provider(story: Story) -> None:
    story.played.append(Story._play(replace(FICKLE, count=0)))
    story.failures[FICKLE.name] = {0}


@pytest.mark.parametrize(
    "spoil",
    [
        _lose_a_mail,
        _double_a_mail,
        _lose_a_webhook,
        _double_a_webhook,
        _lose_a_row,
        _leave_one_open,
        _write_two_events,
        _write_no_event,
        _deliver_what_failed,
        _forge_a_webhook,
        _spare_the_endpoint,
        _end_otherwise,
        _replay_what_was_new,
        _accept_what_is_bad,
        _spare_the_provider,
    ],
)
def test_whatever_is_wrong_is_named(spoil: Callable[[Story], None]) -> None:
    story = Story()
    spoil(story)
    assert story.verdict().problems


@pytest.mark.parametrize("address", ["mail+a@example.com", "phone+b", "+447700900000"])
@pytest.mark.parametrize("key", ["another", None])
def test_a_second_one_under_another_key_is_a_duplicate_that_is_named(address: str, key: str | None) -> None:
    story = Story()
    story.arrived = [Arrival(address, "a"), Arrival("watch+b", "b"), Arrival(address, key)]
    verdict = story.verdict()
    assert verdict.figures["duplicates"] == 1
    assert any("key of no notification" in problem and (key or "none") in problem for problem in verdict.problems)


def test_one_that_arrived_under_another_key_alone_is_lost_and_named() -> None:
    story = Story()
    story.arrived[0] = Arrival(story.arrived[0].address, "another")
    verdict = story.verdict()
    assert (verdict.figures["duplicates"], verdict.figures["lost"]) == (0, 1)
    assert any("another" in problem for problem in verdict.problems)


def test_one_that_also_reached_somebody_else_is_named() -> None:
    story = Story()
    story.arrived.append(Arrival("phone+somebody", "a"))
    assert any("more than one address" in problem for problem in story.verdict().problems)


def test_a_webhook_about_nothing_of_the_day_is_named() -> None:
    story = Story()
    story.taken["d"] += 1
    assert any("no notification of the day: d" in problem for problem in story.verdict().problems)


def test_what_has_not_ended_is_named_with_how_it_stands() -> None:
    story = Story()
    story.played[0].statuses = Counter({"SENT": 1, "PENDING": 1})
    assert not_as_told(story.played) == [f"{ORDERS.title}: PENDING 1, SENT 1 of 2, not all SENT"]


def test_nobody_is_sent_two_things_in_a_day() -> None:
    """Or a duplicate could not be told by its recipient."""
    addresses = [request.address for act in ACTS for request in act.requests("demo")]
    assert len(addresses) == len(set(addresses))


def test_every_request_has_the_run_where_the_ledgers_show_it() -> None:
    for act in ACTS:
        for request in act.requests("demo0123abcd"):
            assert "demo0123abcd" in request.address + request.sms.text
            assert request.labels["demo"] == "demo0123abcd"
