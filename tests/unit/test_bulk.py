"""Cancelling by a filter: how far is looked, how many are taken, and what is told of the rest."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from services.scheduler import bulk
from services.scheduler.bulk import DEFAULT_LIMIT, MAX_LIMIT, Ended, Order, Report, limit_of
from services.scheduler.changes import By
from services.scheduler.faults import Faults
from services.scheduler.listing import Filter, Scan
from services.scheduler.statistics import BOUND, Count
from shared.errors import RequestInvalid
from shared.paging import NEWEST

ORDER = Filter(reference="order")
BY = By("key:1", "why")


@dataclass
class FakeStore:
    """What fits, slice by slice, newest first; `taken` was claimed when it is to be cancelled, `held` is locked."""

    slices: Sequence[Sequence[int]]
    taken: frozenset[int] = frozenset()
    held: frozenset[int] = frozenset()
    region: str | None = None
    cancelled: list[int] = field(default_factory=list)
    looked: list[Scan] = field(default_factory=list)
    filters: list[Filter] = field(default_factory=list)

    async def read_region(self, tenant: str) -> str | None:
        return self.region

    async def find_pending(self, tenant: str, filter_: Filter, scan: Scan) -> tuple[Sequence[UUID], UUID | None]:
        self.looked.append(scan)
        self.filters.append(filter_)
        number = len(self.looked)
        ids = [UUID(int=id_) for id_ in self.slices[number - 1]]
        return ids, UUID(int=10**9 - number) if number < len(self.slices) else None

    async def cancel_notifications(self, tenant: str, ids: Sequence[UUID], actor: str, note: str) -> Ended:
        assert By(actor, note) == BY
        ended = [id_.int for id_ in ids if id_.int not in self.taken | self.held]
        self.cancelled += ended
        return Ended(len(ended), passed_over=any(id_.int in self.held for id_ in ids))


async def cancel(
    store: FakeStore,
    limit: int = 3,
    *,
    filter_: Filter = ORDER,
    dry_run: bool = False,
    has_time: bool = True,
    before: UUID = NEWEST,
) -> Report:
    order = Order(filter_, limit, dry_run)
    return await bulk.cancel(store, "default", order, BY, before=before, has_time=lambda: has_time)


async def test_the_newest_are_taken_up_to_the_limit_and_the_rest_is_counted() -> None:
    store = FakeStore([[9, 8, 7, 6], [], [5, 4]])
    assert await cancel(store) == Report(3, Count(3, at_least=False), end=UUID(int=7))
    assert store.cancelled == [9, 8, 7]


async def test_matches_are_found_below_much_that_does_not_fit() -> None:
    store = FakeStore([[], [], [], [2, 1]])
    assert await cancel(store) == Report(2, Count(0, at_least=False))
    assert [scan.before.int for scan in store.looked[1:]] == [10**9 - 1, 10**9 - 2, 10**9 - 3]


async def test_older_ones_take_the_place_of_those_that_were_claimed_meanwhile() -> None:
    store = FakeStore([[9, 8, 7, 6, 5], [4, 3]], taken=frozenset({9, 7, 6, 4}))
    assert await cancel(store) == Report(3, Count(0, at_least=False))
    assert store.cancelled == [8, 5, 3]


async def test_a_dry_run_counts_and_ends_nothing() -> None:
    store = FakeStore([[9, 8], [7, 6]])
    assert await cancel(store, dry_run=True) == Report(3, Count(1, at_least=False), end=UUID(int=7))
    assert store.cancelled == []


@pytest.mark.parametrize(
    ("more", "remaining"), [(BOUND, Count(BOUND, at_least=False)), (BOUND + 1, Count(BOUND, at_least=True))]
)
async def test_the_rest_is_counted_up_to_its_bound(more: int, remaining: Count) -> None:
    ids = range(more + 3, 0, -1)
    store = FakeStore([ids[:5_000], ids[5_000:]])
    assert (await cancel(store)).remaining == remaining


async def test_the_count_stops_where_its_bound_is_passed() -> None:
    store = FakeStore([range(BOUND + 4, 0, -1), [0]])
    assert (await cancel(store)).remaining == Count(BOUND, at_least=True)
    assert len(store.looked) == 1


async def test_when_its_time_is_up_it_tells_what_it_did_and_that_there_may_be_more() -> None:
    store = FakeStore([[9], [8]])
    assert await cancel(store, has_time=False) == Report(1, Count(0, at_least=True), end=UUID(int=10**9 - 1))


async def test_a_call_begins_where_it_is_told_to() -> None:
    store = FakeStore([[5, 4]])
    await cancel(store, before=UUID(int=7))
    assert [scan.before.int for scan in store.looked] == [7]


async def test_where_a_call_stopped_at_its_limit_the_next_begins_below_the_last_that_was_tried() -> None:
    store = FakeStore([[9, 8, 7, 6, 5], [4, 3]], taken=frozenset({8}))
    assert (await cancel(store)).end == UUID(int=6)
    assert store.cancelled == [9, 7, 6]


async def test_where_nothing_is_left_no_call_is_to_go_on() -> None:
    assert (await cancel(FakeStore([[9, 8], [7]]))).end is None


async def test_what_was_passed_over_makes_the_rest_at_least() -> None:
    store = FakeStore([[9, 8]], held=frozenset({9}))
    assert await cancel(store) == Report(1, Count(0, at_least=True))


async def test_what_was_looked_through_is_told_exactly_however_late_it_is() -> None:
    assert await cancel(FakeStore([[9]]), has_time=False) == Report(1, Count(0, at_least=False))


async def test_a_national_number_is_looked_for_by_the_tenants_region() -> None:
    store = FakeStore([[]], region="GB")
    await cancel(store, filter_=Filter(channel="SMS", address="07700900123"))
    assert store.filters == [Filter(channel="SMS", address="+447700900123")]


async def test_a_national_number_of_no_region_cancels_nothing() -> None:
    store = FakeStore([[9]])
    with pytest.raises(RequestInvalid):
        await cancel(store, filter_=Filter(channel="SMS", address="07700900123"))
    assert store.looked == []


@pytest.mark.parametrize(("asked", "limit"), [(0, DEFAULT_LIMIT), (1, 1), (MAX_LIMIT, MAX_LIMIT)])
def test_a_limit_has_a_default_and_a_bound(asked: int, limit: int) -> None:
    faults = Faults()
    assert limit_of(faults, Filter(status="PENDING", channel="SMS"), asked) == limit
    assert faults.found == []


@pytest.mark.parametrize(
    ("filter_", "limit", "fields"),
    [
        (Filter(), 1, ["filter"]),
        (Filter(status="PENDING"), 1, ["filter"]),
        (Filter(status="SENT", channel="SMS"), 1, ["filter.status"]),
        (Filter(status="FAILED"), 1, ["filter.status", "filter"]),
        (ORDER, -1, ["limit"]),
        (ORDER, MAX_LIMIT + 1, ["limit"]),
    ],
)
def test_what_may_not_be_is_named(filter_: Filter, limit: int, fields: list[str]) -> None:
    faults = Faults()
    limit_of(faults, filter_, limit)
    assert [violation.field for violation in faults.found] == fields
