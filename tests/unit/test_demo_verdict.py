"""The demo's own judgement: whatever is wrong with a day, it names it, and says ok to nothing else."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from sandbox.demo.day import Played
from sandbox.demo.ledgers import Ledgers
from sandbox.demo.story import ACTS, Act
from sandbox.demo.verdict import Rows, Verdict, judge

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
        self.delivered = Counter(("a", "b", "another day's"))
        self.taken = Counter(("a", "b", "c"))
        self.failed_first = 3
        self.unverified = 0
        self.failures = {ORDERS.name: {0}, NEVER.name: {5}}

    @staticmethod
    def _play(act: Act, *ids: str) -> Played:
        return Played(act, set(ids), statuses=Counter({act.ends: act.count}))

    def verdict(self) -> Verdict:
        rows = Rows(self.statuses, self.events)
        ledgers = Ledgers(self.delivered, self.taken, self.failed_first, self.unverified)
        return judge(self.played, self.refused, rows, ledgers, self.failures)


def test_a_day_that_went_well_says_so_in_one_line() -> None:
    verdict = Story().verdict()
    assert verdict.problems == []
    assert verdict.line() == (
        "demo: ok accepted=3 sent=2 failed=0 dead_lettered=1 cancelled=0 expired=0 suppressed=0 webhooks=3 "
        "duplicates=0 lost=0"
    )


def _lose_a_mail(story: Story) -> None:
    del story.delivered["a"]


def _double_a_mail(story: Story) -> None:
    story.delivered["a"] += 1


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
    story.delivered["c"] += 1


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
