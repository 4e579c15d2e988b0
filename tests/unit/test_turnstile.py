"""The turnstile, whatever comes when: no window above its limit, nobody before those who wait, nobody forgotten."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from services.worker.turnstile import CALLED_WITHOUT_LIMIT, LOOK_AGAIN, Window, admit, opens_in
from tests.unit.test_attempt import CLAIM

LENGTH = timedelta(seconds=100)


def ids(*numbers: int) -> list[UUID]:
    return [UUID(int=number) for number in numbers]


def window(
    limit: int | None = 3,
    starts: Iterable[tuple[int, int]] = (),
    granted: Iterable[int] = (),
    *,
    queue: bool = False,
) -> Window:
    """`starts` as number and seconds ago."""
    since = {UUID(int=number): timedelta(seconds=ago) for number, ago in starts}
    return Window(limit, LENGTH, since, frozenset(ids(*granted)), queue)


def test_the_most_urgent_take_what_is_free_and_the_others_wait() -> None:
    plan = admit(window(3, [(9, 50)]), ids(1, 2, 3, 4))
    assert (plan.start, plan.wait, plan.newcomers) == (ids(1, 2), ids(3, 4), set(ids(1, 2)))


def test_who_was_called_up_starts_and_takes_no_other_slot() -> None:
    plan = admit(window(3, [(8, 50), (9, 50)], [1], queue=True), ids(1))
    assert (plan.start, plan.newcomers) == (ids(1), set())


def test_a_retry_in_the_window_takes_no_other_slot() -> None:
    plan = admit(window(1, [(1, 99)], queue=True), ids(1))
    assert (plan.start, plan.newcomers) == (ids(1), set())


def test_nobody_goes_before_those_who_wait_even_where_there_is_room() -> None:
    assert admit(window(3, queue=True), ids(1)).wait == ids(1)


def test_what_was_given_on_other_channels_is_taken() -> None:
    assert admit(window(3, [(9, 50)]), ids(1, 2), taken=1).start == ids(1)
    assert admit(window(3, [(9, 50)]), ids(1), taken=2).wait == ids(1)


def test_every_spelling_of_an_address_has_one_limit() -> None:
    spelled = [replace(CLAIM, address=address).recipient for address in ("Hot@example.com", "hot@example.com")]
    assert spelled[0] == spelled[1]
    tokens = [replace(CLAIM, channel="PUSH", address=token).recipient for token in ("T", "t")]
    assert tokens[0] != tokens[1]


def test_a_subscribers_channels_have_one_holder_and_no_address_is_taken_for_one() -> None:
    mail, text = (replace(CLAIM, channel=channel, subscriber="ada").recipient for channel in ("EMAIL", "SMS"))
    assert (mail.limit_key, text.limit_key) == ("EMAIL subscriber ada", "SMS subscriber ada")
    assert mail.holder == text.holder
    assert replace(CLAIM, address="subscriber").recipient.holder != mail.holder
    assert replace(CLAIM, tenant_id="other", subscriber="ada").recipient.holder != mail.holder


def test_without_a_limit_everybody_starts() -> None:
    assert admit(window(None, queue=True), ids(1, 2)).start == ids(1, 2)
    assert window(None, queue=True).free == CALLED_WITHOUT_LIMIT


def test_a_gate_opens_when_the_first_slot_comes_free_that_is_one_too_many() -> None:
    full = [(1, 90), (2, 60), (3, 30)]
    assert opens_in(window(3, full), 0) == timedelta(seconds=10)
    assert opens_in(window(2, full), 0) == timedelta(seconds=40)  # the limit was lowered
    assert opens_in(window(4, full), 1) == timedelta(seconds=10)
    assert opens_in(window(5, full), 1) == timedelta()
    assert opens_in(window(1), 1) == LENGTH  # it has not even started
    assert opens_in(window(None, full), 0) == timedelta()


def test_while_a_slot_is_kept_a_gate_is_looked_at_again_before_long() -> None:
    """A lane that stops tells nobody that who was called up in it starts no more."""
    assert opens_in(window(1, [], [7]), 0) == LOOK_AGAIN
    assert opens_in(window(2, [(1, 30)], [7]), 0) == LOOK_AGAIN
    assert opens_in(window(2, [(1, 90)], [7]), 0) == timedelta(seconds=10)
    assert opens_in(replace(window(1, [], [7]), length=timedelta(seconds=5)), 0) == timedelta(seconds=5)
    assert opens_in(window(1, [(7, 90)], [7]), 0) == LOOK_AGAIN  # its slot is kept from then on
    assert opens_in(window(3, [], [7]), 1) == timedelta()


# --- everything at once: what may happen to one recipient, against a clock of the test's own


@dataclass
class Recipient:
    """What the database holds of one recipient, and the statements that change it."""

    limit: int
    now: int = 0
    started_at: dict[int, int] = field(default_factory=dict)
    granted: set[int] = field(default_factory=set)
    waiting: list[int] = field(default_factory=list)
    pending: set[int] = field(default_factory=set)
    """Due, and not held."""
    gate: int | None = None
    log: list[tuple[int, int]] = field(default_factory=list)
    """Every start there was: when, and whose."""

    def read(self) -> Window:
        length = int(LENGTH.total_seconds())
        starts = [(number, self.now - at) for number, at in self.started_at.items() if self.now - at < length]
        return window(self.limit, starts, self.granted, queue=bool(self.waiting))

    def claim(self, count: int) -> None:
        """Low numbers are urgent ones."""
        claimed = sorted(self.pending)[:count]
        self.pending -= set(claimed)
        seen = self.read()
        plan = admit(seen, ids(*claimed))
        for id_ in plan.start:
            self.started_at[id_.int] = self.now
            self.granted.discard(id_.int)
            self.log.append((self.now, id_.int))
        self.waiting = sorted([*self.waiting, *(id_.int for id_ in plan.wait)])
        if plan.wait:
            self.gate = self.now + int(opens_in(seen, len(plan.newcomers)).total_seconds())

    def open(self) -> None:
        if self.gate is None or self.gate > self.now:
            return
        seen = self.read()
        called, self.waiting = self.waiting[: seen.free], self.waiting[seen.free :]
        self.granted |= set(called)
        self.pending |= set(called)
        self.gate = self.now + int(opens_in(seen, len(called)).total_seconds()) if self.waiting else None

    def cancel(self, number: int) -> None:
        if number in self.pending or number in self.waiting:
            self.pending.discard(number)
            self.granted.discard(number)
            self.waiting = [other for other in self.waiting if other != number]

    def retry(self, number: int) -> None:
        if number in self.started_at and number not in self.pending and number not in self.waiting:
            self.pending.add(number)

    def most_in_a_window(self) -> int:
        length = int(LENGTH.total_seconds())
        return max(
            (len({number for at, number in self.log if first <= at < first + length}) for first, _ in self.log),
            default=0,
        )


numbers = st.integers(1, 12)
happenings = st.one_of(
    st.tuples(st.just("arrive"), numbers),
    st.tuples(st.just("claim"), st.integers(1, 5)),
    st.tuples(st.just("cancel"), numbers),
    st.tuples(st.just("retry"), numbers),
    st.tuples(st.just("pass"), st.integers(1, 120)),
    st.tuples(st.just("open"), st.just(0)),
)


def play(recipient: Recipient, script: list[tuple[str, int]]) -> None:
    arrived: set[int] = set()
    for what, number in script:
        match what:
            case "arrive" if number not in arrived:
                arrived.add(number)
                recipient.pending.add(number)
            case "claim":
                recipient.claim(number)
            case "cancel":
                recipient.cancel(number)
            case "retry":
                recipient.retry(number)
            case "pass":
                recipient.now += number
            case "open":
                recipient.open()


@given(st.integers(1, 4), st.lists(happenings, max_size=60))
def test_no_window_holds_more_than_its_limit_whatever_happens(limit: int, script: list[tuple[str, int]]) -> None:
    recipient = Recipient(limit)
    play(recipient, script)
    assert recipient.most_in_a_window() <= limit


@given(st.integers(1, 4), st.lists(happenings, max_size=60))
def test_whoever_waits_has_a_gate_and_starts_in_the_end(limit: int, script: list[tuple[str, int]]) -> None:
    recipient = Recipient(limit)
    play(recipient, script)
    for _ in range(40):  # 12 of them, and a slot that was freed unseen costs a window
        if not (recipient.waiting or recipient.pending):
            break
        assert not recipient.waiting or recipient.gate is not None
        recipient.open()
        recipient.claim(5)
        if recipient.gate is not None:
            recipient.now = max(recipient.now, recipient.gate)
    assert not recipient.waiting
    assert not recipient.pending
    assert recipient.most_in_a_window() <= limit


@given(st.integers(1, 4), st.lists(numbers, unique=True, min_size=1))
def test_a_burst_starts_in_the_order_of_urgency_and_each_is_claimed_twice_at_most(limit: int, burst: list[int]) -> None:
    recipient = Recipient(limit, pending=set(burst))
    while recipient.pending or recipient.waiting:
        recipient.claim(20)
        recipient.now = recipient.gate if recipient.gate is not None else recipient.now
        recipient.open()
    assert [number for _, number in recipient.log] == sorted(burst)
