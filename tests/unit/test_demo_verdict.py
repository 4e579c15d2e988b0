"""The demo's own judgement: whatever is wrong with a day, it names it, and says ok to nothing else."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from sandbox.demo.day import Played
from sandbox.demo.ledgers import Arrival, Ledgers
from sandbox.demo.story import ACTS, BURST, REFUSALS, WINDOW, Act, Said
from sandbox.demo.verdict import Rows, Verdict, judge, not_as_told

NEVER = next(act for act in ACTS if act.ends == "DEAD_LETTERED")
ORDERS = replace(ACTS[0], count=2)
SHIPPED = next(act for act in ACTS if act.says)
OFTEN = next(act for act in ACTS if act.spaced)
STALE = next(act for act in ACTS if act.silent)
NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)
FICKLE = next(act for act in ACTS if act.failures)


class Story:
    """Two acts that went well, until a test spoils something."""

    def __init__(self) -> None:
        self.played = [self._play(ORDERS, "a", "b"), self._play(replace(NEVER, count=1), "c")]
        self.refused = {refusal.title: True for refusal in REFUSALS}
        self.statuses = {"a": "SENT", "b": "SENT", "c": "DEAD_LETTERED"}
        self.events = Counter(("a", "b", "c"))
        self.arrived = [Arrival("mail+a@example.com", "a"), Arrival("phone+b", "b")]
        self.taken = Counter(("a", "b", "c"))
        self.failed_first = 3
        self.unverified = 0
        self.failures = {ORDERS.name: {0}, NEVER.name: {5}}
        self.read: dict[str, list[Said]] = {}
        self.times: dict[str, list[datetime]] = {}
        self.asked: dict[str, int] = {}
        self.starts: dict[str, datetime] = {}

    def add(self, act: Act, *addresses: str) -> None:
        """One more act, that went well as well."""
        played = self._play(act, *(f"{act.name}-{number}" for number in range(act.count)))
        played.addresses = [*addresses]
        self.played.append(played)
        self.failures[act.name] = {0}
        for id_, address in zip(sorted(played.ids), addresses, strict=True):
            self.statuses[id_] = act.ends
            self.events[id_] += 1
            self.taken[id_] += 1
            self.failed_first += 1
            if act.ends == "SENT":
                self.arrived.append(Arrival(address, id_))

    @staticmethod
    def _play(act: Act, *ids: str) -> Played:
        return Played(act, set(ids), statuses=Counter({act.ends: act.count}))

    def verdict(self) -> Verdict:
        rows = Rows(self.statuses, self.events, starts=self.starts)
        ledgers = Ledgers(
            self.arrived, self.taken, self.failed_first, self.unverified, self.read, self.times, self.asked
        )
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
    story.refused[REFUSALS[-1].title] = False


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


def test_what_a_template_says_is_read_where_it_came_and_anything_else_is_named() -> None:
    story, act = Story(), replace(SHIPPED, count=2)
    assert act.says
    story.add(act, "one", "two")
    story.read = {"one": [act.says(0)], "two": [act.says(1)]}
    assert story.verdict().problems == []
    for wrong in ([act.says(0)], [], [Said("Order", "It left us today, O&#x27;Neill.")]):
        story.read["two"] = wrong
        assert [problem.partition(":")[0] for problem in story.verdict().problems] == [act.title]


SPREAD = [0, 0, 1, 1.1, 2.2, 2.2]


@pytest.mark.parametrize(
    ("started", "came", "problem"),
    [
        (SPREAD, SPREAD, ""),
        (SPREAD, [1, 1, 1, 1.1, 2.2, 2.2], ""),  # the first were slow to arrive
        ([0, 0, 0, 1.1, 2.2, 2.2], SPREAD, "3 were started within 0:00:00"),
        ([0, 0.5, 1.1, 1.2, 2.2, 2.2], SPREAD, "3 were started within 0:00:01.400000"),
        (SPREAD, [0] * 6, "all came within"),
        (SPREAD, SPREAD[1:], "6 were started, 5 came"),
        (SPREAD[1:], SPREAD, "5 were started, 6 came"),
    ],
)
def test_more_at_once_to_one_address_than_it_may_get_is_named(
    started: list[float], came: list[float], problem: str
) -> None:
    """In windows from noon on."""
    story = Story()
    story.add(OFTEN, *["one"] * OFTEN.count)
    story.times["one"] = [NOON + later * WINDOW for later in came]
    story.starts = {f"{OFTEN.name}-{number}": NOON + later * WINDOW for number, later in enumerate(started)}
    verdict = story.verdict()
    assert all(found.startswith(f"{OFTEN.title}: {problem}") for found in verdict.problems)
    assert len(verdict.problems) == bool(problem)
    assert verdict.figures["duplicates"] == 0
    story.arrived.append(Arrival("one", f"{OFTEN.name}-0"))
    assert story.verdict().figures["duplicates"] == 1


def test_what_was_to_be_kept_back_and_was_asked_of_the_other_side_is_named() -> None:
    story, act = Story(), replace(STALE, count=1)
    story.add(act, "phone+b")  # where something else arrived
    for asked, well in ((1, True), (2, False), (0, False)):
        story.asked = {"phone+b": asked}
        assert [problem.partition(":")[0] for problem in story.verdict().problems] == ([] if well else [act.title])


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


def test_nobody_is_sent_two_things_in_a_day_but_who_is_sent_as_many_as_may_come() -> None:
    """Or a duplicate could not be told by its recipient."""
    acts = [act for act in ACTS if act.ends == "SENT" and not act.spaced]
    addresses = [request.address for act in acts for request in act.requests("demo")]
    assert len(addresses) == len(set(addresses))
    (one,) = {request.address for act in ACTS if act.spaced for request in act.requests("demo")}
    assert one not in addresses


def test_the_small_shop_may_bring_in_what_it_asks_for_and_not_one_more() -> None:
    small = [act for act in ACTS if act.small]
    assert sum(len(act.requests("demo")) for act in small) == BURST
    assert not any(act.twice or act.in_batches for act in small)
    last = [refusal for refusal in REFUSALS if refusal.reason == "TENANT_LIMIT_EXCEEDED"]
    assert [refusal.after for refusal in last] == [small[-1].name]


def test_every_request_has_the_run_where_the_ledgers_show_it() -> None:
    for act in ACTS:
        for request in act.requests("demo0123abcd"):
            assert "demo0123abcd" in request.address + request.sms.text
            assert request.labels["demo"] == "demo0123abcd"
