"""Redriving by a filter: how far is looked, who has which turn, and what is told of the rest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.bulk import DEFAULT_LIMIT, MAX_LIMIT
from services.scheduler.changes import By
from services.scheduler.faults import Faults
from services.scheduler.listing import OLDEST, Filter, Scan, scan_of
from services.scheduler.redrives import MAX_SPREAD, Dead, Order, Redriving, Report, Slice, Tried, order_of, spread
from services.scheduler.statistics import BOUND, Count
from shared.errors import RequestInvalid

ORDERED = Filter(status="DEAD_LETTERED", reference="order")
BY = By("key:1", "why")
MINUTE = timedelta(minutes=1)


@dataclass
class FakeStore:
    """What fits, slice by slice, oldest first.

    At its turn `taken` was redriven by another, `held` is locked, and `expiring` would expire before it.
    """

    slices: Sequence[Sequence[int]]
    taken: frozenset[int] = frozenset()
    held: frozenset[int] = frozenset()
    expiring: frozenset[int] = frozenset()
    passed_over: Sequence[int] = ()
    region: str | None = None
    redriven: dict[int, timedelta] = field(default_factory=dict)
    looked: list[Scan] = field(default_factory=list)
    filters: list[Filter] = field(default_factory=list)

    async def read_region(self, tenant: str) -> str | None:
        return self.region

    async def find_dead(self, tenant: str, filter_: Filter, scan: Scan) -> Slice:
        self.looked.append(scan)
        self.filters.append(filter_)
        number = len(self.looked)
        dead = [Dead(UUID(int=id_), 1) for id_ in self.slices[number - 1]]
        end = 1000 * number
        passed_over = [UUID(int=id_) for id_ in self.passed_over if end - 1000 <= id_ < end]
        return Slice(dead, passed_over, UUID(int=end) if number < len(self.slices) else None)

    async def redrive_notifications(
        self, tenant: str, turns: Mapping[Dead, timedelta], max_attempts: int, by: By, *, pass_locked: bool
    ) -> Mapping[UUID, Tried]:
        assert (by, max_attempts, pass_locked) == (BY, 5, True)
        out = self.taken | self.held | self.expiring
        ours = {dead: turn for dead, turn in turns.items() if dead.id.int not in out}
        self.redriven |= {dead.id.int: turn for dead, turn in ours.items()}
        told = [dead for dead in turns if dead.id.int not in self.held]
        against = dict.fromkeys(self.taken, "STATUS") | dict.fromkeys(self.expiring, "EXPIRED")
        return {dead.id: Tried("EMAIL", "DEAD_LETTERED", 0, against.get(dead.id.int)) for dead in told}


async def redrive(
    store: Any,
    limit: int = 3,
    *,
    filter_: Filter = ORDERED,
    dry_run: bool = False,
    over: timedelta = timedelta(),
    has_time: bool = True,
    told: list[str] | None = None,
    after: UUID | None = None,
) -> Report:
    redriving = Redriving(store, max_attempts=5, on_due=(told if told is not None else list[str]()).append)
    order = Order(filter_, limit, dry_run, over)
    return await redriving.redrive_all("default", order, BY, after=after, has_time=lambda: has_time)


async def test_what_somebody_held_makes_the_rest_at_least_and_a_younger_one_takes_its_turn() -> None:
    store = FakeStore([[1, 2, 3, 4]], held=frozenset({2}))
    assert await redrive(store) == Report(3, Count(0, at_least=True), 0, skipped=1)
    assert list(store.redriven) == [1, 3, 4]


async def test_what_would_expire_before_its_turn_is_passed_over_and_told() -> None:
    store = FakeStore([[1, 2, 3, 4]], expiring=frozenset({2, 3}), passed_over=[5])
    assert await redrive(store) == Report(2, Count(0, at_least=False), 3)
    assert list(store.redriven) == [1, 4]


async def test_a_call_whose_turns_nobody_takes_stops_when_its_time_is_up() -> None:
    """Or it would try each of thousands by itself."""
    store = FakeStore([range(1, 1001)], expiring=frozenset(range(1, 1001)))
    assert await redrive(store, 2, has_time=False) == Report(0, Count(998, at_least=False), 2, UUID(int=2))


async def test_the_oldest_are_taken_up_to_the_limit_and_the_rest_is_counted() -> None:
    store, told = FakeStore([[1, 2], [], [2003, 2005, 2006]]), list[str]()
    assert await redrive(store, told=told) == Report(3, Count(2, at_least=False), 0, UUID(int=2003))
    assert list(store.redriven) == [1, 2, 2003]
    assert [scan.after for scan in store.looked] == [OLDEST, UUID(int=1001), UUID(int=2001)]
    assert told == ["EMAIL"]


async def test_a_call_goes_on_above_what_the_one_before_it_tried_and_each_passed_over_one_is_told_once() -> None:
    passed_over = [1, 4, 1000, 1002]
    store = FakeStore([[2, 3, 5], [1001, 1003]], passed_over=passed_over)
    assert await redrive(store) == Report(3, Count(2, at_least=False), 2, UUID(int=5))
    # As the database answers where the first is left out.
    store = FakeStore([[], [1001, 1003]], passed_over=passed_over[2:])
    assert await redrive(store, after=UUID(int=5)) == Report(2, Count(0, at_least=False), 2)
    assert store.looked[0].after == UUID(int=6)


async def test_a_token_goes_no_lower_than_the_filter_does() -> None:
    store = FakeStore([[]])
    since = datetime(2026, 1, 1, tzinfo=UTC)
    await redrive(store, filter_=replace(ORDERED, created_since=since), after=UUID(int=5))
    assert store.looked == [scan_of(Filter(created_since=since))]


async def test_where_another_redrove_the_last_ones_it_goes_on_above_them() -> None:
    store = FakeStore([[1, 2], [1001]], taken=frozenset({1, 2}))
    assert await redrive(store, 2, has_time=False) == Report(0, Count(0, at_least=True), 0, UUID(int=1000))


async def test_turns_are_spread_over_the_span_by_how_many_there_are() -> None:
    store = FakeStore([[1], [2, 3, 4]])
    await redrive(store, 100, over=4 * MINUTE)
    assert store.redriven == {1: 0 * MINUTE, 2: MINUTE, 3: 2 * MINUTE, 4: 3 * MINUTE}


async def test_younger_ones_take_the_turns_of_those_that_another_redrove() -> None:
    store = FakeStore([[1, 2, 3, 4, 5], [6, 7]], taken=frozenset({1, 3, 4}))
    assert await redrive(store, over=3 * MINUTE) == Report(3, Count(1, at_least=False), 0, UUID(int=6))
    assert store.redriven == {2: MINUTE, 5: 2 * MINUTE, 6: 0 * MINUTE}


async def test_what_another_redrove_is_nobodys_turn_where_there_are_no_more() -> None:
    store, told = FakeStore([[1, 2]], taken=frozenset({1, 2})), list[str]()
    assert await redrive(store, told=told) == Report(0, Count(0, at_least=False), 0)
    assert told == []


async def test_a_dry_run_counts_and_redrives_nothing() -> None:
    store = FakeStore([[1, 2], [3, 4]])
    assert await redrive(store, dry_run=True) == Report(3, Count(1, at_least=False), 0, UUID(int=3))
    assert store.redriven == {}


@pytest.mark.parametrize(
    ("more", "remaining"), [(BOUND, Count(BOUND, at_least=False)), (BOUND + 1, Count(BOUND, at_least=True))]
)
async def test_the_rest_is_counted_up_to_its_bound(more: int, remaining: Count) -> None:
    ids = range(1, more + 4)
    assert (await redrive(FakeStore([ids[:5_000], ids[5_000:]]))).remaining == remaining


async def test_the_count_stops_where_its_bound_is_passed() -> None:
    store = FakeStore([range(1, BOUND + 5), [0]])
    assert (await redrive(store)).remaining == Count(BOUND, at_least=True)
    assert len(store.looked) == 1


async def test_when_its_time_is_up_it_redrives_what_it_found_and_says_that_there_may_be_more() -> None:
    store = FakeStore([[1], [2]])
    assert await redrive(store, has_time=False) == Report(1, Count(0, at_least=True), 0, UUID(int=1000))
    assert list(store.redriven) == [1]


async def test_what_was_looked_through_is_told_exactly_however_late_it_is() -> None:
    assert await redrive(FakeStore([[1]]), has_time=False) == Report(1, Count(0, at_least=False), 0)


async def test_a_national_number_is_looked_for_by_the_tenants_region() -> None:
    store = FakeStore([[]], region="GB")
    await redrive(store, filter_=Filter(status="FAILED", channel="SMS", address="07700900123"))
    assert store.filters == [Filter(status="FAILED", channel="SMS", address="+447700900123")]
    with pytest.raises(RequestInvalid):
        await redrive(FakeStore([[1]]), filter_=Filter(status="FAILED", channel="SMS", address="07700900123"))


@given(st.integers(0, MAX_LIMIT), st.timedeltas(timedelta(), MAX_SPREAD))
def test_turns_begin_at_once_end_within_the_span_and_are_equally_far_apart(count: int, span: timedelta) -> None:
    turns = spread(count, span)
    assert len(turns) == count
    assert turns[:1] == [timedelta()] * min(count, 1)
    gaps = [after - before for before, after in pairwise(turns)]
    even = span / max(count, 1)
    gaps += [span - turn for turn in turns[-1:]]
    assert all(abs(gap - even) <= timedelta(microseconds=2) for gap in gaps)


@pytest.mark.parametrize(
    ("status", "chosen"), [(None, "DEAD_LETTERED"), ("DEAD_LETTERED", "DEAD_LETTERED"), ("FAILED", "FAILED")]
)
def test_what_is_failed_has_to_be_asked_for(status: str | None, chosen: str) -> None:
    faults = Faults()
    order = order_of(faults, Filter(status=status, channel="SMS"), 0, MAX_SPREAD, dry_run=True)
    assert order == Order(Filter(status=chosen, channel="SMS"), DEFAULT_LIMIT, True, MAX_SPREAD)
    assert faults.found == []


@pytest.mark.parametrize(
    ("filter_", "limit", "over", "fields"),
    [
        (Filter(), 1, 0 * MINUTE, ["filter"]),
        (Filter(status="FAILED"), 1, 0 * MINUTE, ["filter"]),
        (Filter(status="PENDING", channel="SMS"), 1, 0 * MINUTE, ["filter.status"]),
        (Filter(status="SUPPRESSED", channel="SMS"), 1, 0 * MINUTE, ["filter.status"]),
        (ORDERED, -1, 0 * MINUTE, ["limit"]),
        (ORDERED, MAX_LIMIT + 1, 0 * MINUTE, ["limit"]),
        (ORDERED, 1, -MINUTE, ["spread_over"]),
        (ORDERED, 1, MAX_SPREAD + MINUTE, ["spread_over"]),
    ],
)
def test_what_may_not_be_is_named(filter_: Filter, limit: int, over: timedelta, fields: list[str]) -> None:
    faults = Faults()
    order_of(faults, filter_, limit, over, dry_run=False)
    assert [violation.field for violation in faults.found] == fields
