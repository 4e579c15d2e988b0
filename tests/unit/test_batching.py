"""Group commit: what waits is merged, and every caller learns what became of its own item."""

import asyncio
import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.batching import MAX_TRIES, BadItem, Contention, GroupCommit
from shared.errors import ServerOverloaded
from tests.waiting import settled


@dataclass(frozen=True)
class Item:
    name: str
    key: str = ""
    size: int = 0


@dataclass
class Planes:
    """A flush that lasts until the test lands it."""

    groups: list[list[str]] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    _gates: "list[asyncio.Future[None]]" = field(default_factory=list)

    async def flush(self, items: Sequence[Item]) -> Sequence[str]:
        names = [item.name for item in items]
        self.groups.append(names)
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gates.append(gate)
        await gate
        self.written += names
        return [f"{name} is written" for name in names]

    async def land(self, number: int = 0) -> None:
        """Ends one of those in the air, and lets what follows from that happen."""
        self._gates.pop(number).set_result(None)
        await settled()

    async def crash(self, error: Exception) -> None:
        self._gates.pop(0).set_exception(error)
        await settled()

    async def land_all(self) -> None:
        while self._gates:
            await self.land()


def commit(planes: Planes, *, flights: int = 1, **limits: Any) -> GroupCommit[Item, str]:
    return GroupCommit(planes.flush, flights=asyncio.Semaphore(flights), key=key, size=lambda item: item.size, **limits)


def key(item: Item) -> str:
    return item.key or item.name


async def submit(group: GroupCommit[Item, str], *items: Item) -> "list[asyncio.Task[str]]":
    """Each by a caller of its own, that waits for the answer."""
    callers = [asyncio.create_task(group.submit(item)) for item in items]
    await settled()
    return callers


def items(names: str) -> list[Item]:
    return [Item(name) for name in names.split()]


async def test_an_idle_operation_leaves_alone_and_at_once() -> None:
    planes = Planes()
    group = commit(planes, flights=4)
    (caller,) = await submit(group, Item("a"))
    assert planes.groups == [["a"]]
    await planes.land()
    assert await caller == "a is written"


async def test_what_waits_is_merged_and_leaves_with_the_next_flight() -> None:
    planes = Planes()
    group = commit(planes)
    callers = await submit(group, *items("a")) + await submit(group, *items("b c")) + await submit(group, *items("d"))
    assert planes.groups == [["a"]]
    await planes.land()
    assert planes.groups == [["a"], ["b", "c", "d"]]
    await planes.land()
    assert [await caller for caller in callers] == [f"{name} is written" for name in "abcd"]


async def test_a_second_operation_takes_a_second_flight_while_one_is_free() -> None:
    planes = Planes()
    group = commit(planes, flights=2)
    callers = [caller for name in "abcd" for caller in await submit(group, Item(name))]
    assert planes.groups == [["a"], ["b"]]
    await planes.land(1)
    assert planes.groups == [["a"], ["b"], ["c", "d"]]
    await planes.land_all()
    assert [await caller for caller in callers] == [f"{name} is written" for name in "abcd"]


async def test_a_group_has_at_most_so_many_items() -> None:
    planes = Planes()
    group = commit(planes, max_group=2)
    await submit(group, Item("a"))
    await submit(group, *items("b c d"))
    await planes.land()
    assert planes.groups[1:] == [["b", "c"]]
    await planes.land_all()
    assert planes.groups[2:] == [["d"]]


async def test_a_group_has_at_most_so_many_bytes() -> None:
    planes = Planes()
    group = commit(planes, max_bytes=10)
    await submit(group, Item("a"))
    await submit(group, *(Item(name, size=4) for name in "bcd"))
    await planes.land_all()
    assert planes.groups[1:] == [["b", "c"], ["d"]]


async def test_what_is_larger_than_a_group_may_be_leaves_alone() -> None:
    planes = Planes()
    group = commit(planes, max_bytes=10)
    await submit(group, Item("a"))
    await submit(group, Item("b"), Item("large", size=11), Item("c"))
    await planes.land_all()
    assert planes.groups[1:] == [["b"], ["large"], ["c"]]
    assert planes.written == ["a", "b", "large", "c"]


async def test_equal_keys_are_never_in_one_group() -> None:
    planes = Planes()
    group = commit(planes)
    await submit(group, Item("a"))
    await submit(group, Item("b", "same"), Item("c", "same"), Item("d"))
    await planes.land()
    assert planes.groups[1:] == [["b", "d"]]
    await planes.land_all()
    assert planes.groups[2:] == [["c"]]


async def test_equal_keys_never_fly_at_the_same_time() -> None:
    planes = Planes()
    group = commit(planes, flights=3)
    await submit(group, Item("a", "same"), Item("b", "same"))
    await submit(group, Item("c", "same"))
    assert planes.groups == [["a"]]
    await planes.land()
    assert planes.groups == [["a"], ["b"]]
    await planes.land_all()
    assert planes.groups == [["a"], ["b"], ["c"]]


async def test_what_waits_for_its_key_holds_up_nobody() -> None:
    planes = Planes()
    group = commit(planes, flights=2)
    await submit(group, Item("a", "same"))
    await submit(group, Item("b", "same"))
    await submit(group, Item("c"))
    assert planes.groups == [["a"], ["c"]]
    await planes.land_all()
    assert planes.written == ["a", "c", "b"]


async def test_a_key_may_fly_again_after_a_flight_that_failed() -> None:
    planes = Planes()
    group = commit(planes)
    failed, second = await submit(group, Item("a", "same"), Item("b", "same"))
    await planes.crash(RuntimeError("lost"))
    await planes.land()
    with pytest.raises(RuntimeError, match="lost"):
        await failed
    assert await second == "b is written"


@dataclass
class Table:
    """A flush that writes all of a group or nothing, as a transaction does."""

    bad: frozenset[str]
    written: list[str] = field(default_factory=list)
    calls: int = 0

    async def flush(self, items: Sequence[Item]) -> Sequence[str]:
        self.calls += 1
        names = [item.name for item in items]
        if self.bad.intersection(names):
            raise BadItem
        self.written += names
        return names


@pytest.mark.parametrize("bad", [{"0"}, {"250"}, {"499"}, {"7", "8", "400"}, set()])
async def test_a_bad_item_fails_alone_and_all_others_are_written_once(bad: set[str]) -> None:
    table = Table(frozenset(bad))
    group = GroupCommit(table.flush, flights=asyncio.Semaphore(1), key=key)
    names = [str(number) for number in range(500)]
    callers = await submit(group, *map(Item, names))
    assert all(caller.done() for caller in callers)
    failed = {name for name, caller in zip(names, callers, strict=True) if isinstance(caller.exception(), BadItem)}
    assert failed == bad
    assert sorted(table.written, key=int) == [name for name in names if name not in bad]
    assert table.calls <= 1 + 2 * 9 * len(bad), "the group is halved, not tried one by one"


@dataclass
class Contended:
    """A flush that meets somebody else for its first `times` calls."""

    times: int
    groups: list[list[str]] = field(default_factory=list)

    async def flush(self, items: Sequence[Item]) -> Sequence[str]:
        self.groups.append([item.name for item in items])
        if len(self.groups) <= self.times:
            raise Contention
        return [item.name for item in items]


@contextmanager
def no_pauses() -> Iterator[None]:
    """Between tries of a contended group."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shared.batching.random.uniform", lambda *_: 0.0)
        yield


async def test_a_group_that_met_another_transaction_is_tried_again_as_it_is() -> None:
    contended = Contended(times=MAX_TRIES - 1)
    group = GroupCommit(contended.flush, flights=asyncio.Semaphore(1), key=key)
    with no_pauses():
        assert await asyncio.gather(*map(group.submit, items("a b"))) == ["a", "b"]
    assert contended.groups == [["a", "b"]] * MAX_TRIES


async def test_contention_without_end_is_given_up() -> None:
    contended = Contended(times=1_000)
    group = GroupCommit(contended.flush, flights=asyncio.Semaphore(1), key=key)
    with no_pauses():
        answers = await asyncio.gather(*map(group.submit, items("a b")), return_exceptions=True)
    assert [type(answer) for answer in answers] == [Contention, Contention]
    assert contended.groups == [["a", "b"]] * MAX_TRIES


async def test_any_other_error_fails_the_whole_group_with_what_was_raised() -> None:
    planes = Planes()
    group = commit(planes)
    callers = await submit(group, *items("a b"))
    error = ConnectionError("gone")
    await planes.crash(error)
    assert await asyncio.gather(*callers, return_exceptions=True) == [error, error]
    assert planes.groups == [["a", "b"]]


async def test_an_error_fails_nobody_of_the_next_group() -> None:
    planes = Planes()
    group = commit(planes)
    first = await submit(group, Item("a"))
    second = await submit(group, *items("b c"))
    await planes.crash(ConnectionError("gone"))
    await planes.land()
    assert [await caller for caller in second] == ["b is written", "c is written"]
    assert isinstance((await asyncio.gather(*first, return_exceptions=True))[0], ConnectionError)


@pytest.mark.parametrize("answers", [[], ["one"], ["one", "two", "three"]])
async def test_a_flush_that_answers_too_few_or_too_many_leaves_nobody_waiting(answers: list[str]) -> None:
    async def flush(_: Sequence[Item]) -> Sequence[str]:
        return answers

    group = GroupCommit(flush, flights=asyncio.Semaphore(1), key=key)
    callers = await submit(group, *items("a b"))
    assert all(caller.done() for caller in callers)
    assert all(isinstance(caller.exception(), ValueError) for caller in callers)


async def test_it_refuses_at_the_bound_of_what_may_wait() -> None:
    planes = Planes()
    group = commit(planes, max_waiting=2)
    await submit(group, Item("a"))
    await submit(group, *items("b c"))
    (refused,) = await submit(group, Item("d"))
    assert refused.done()
    assert isinstance(refused.exception(), ServerOverloaded)
    await planes.land()
    await submit(group, Item("e"))
    await planes.land_all()
    assert planes.written == ["a", "b", "c", "e"]


async def test_a_caller_that_leaves_before_its_group_takes_its_item_along() -> None:
    planes = Planes()
    group = commit(planes)
    await submit(group, Item("a"))
    _, leaver, _ = await submit(group, *items("b c d"))
    leaver.cancel()
    await planes.land_all()
    assert planes.groups == [["a"], ["b", "d"]]


async def test_where_all_have_left_nothing_is_flushed_and_the_flight_is_given_back() -> None:
    planes = Planes()
    group = commit(planes)
    await submit(group, Item("a"))
    for leaver in await submit(group, *items("b c")):
        leaver.cancel()
    await planes.land()
    assert planes.groups == [["a"]]
    await submit(group, Item("d"))
    assert planes.groups == [["a"], ["d"]]
    await planes.land_all()


async def test_the_item_of_a_caller_that_leaves_during_the_flight_is_written() -> None:
    planes = Planes()
    group = commit(planes)
    leaver, stayer = await submit(group, *items("a b"))
    leaver.cancel()
    await planes.land()
    assert planes.written == ["a", "b"]
    assert leaver.cancelled()
    assert stayer.done()
    assert stayer.result() == "b is written"


async def test_an_error_for_a_caller_that_left_is_nobodys() -> None:
    planes = Planes()
    group = commit(planes)
    leaver, stayer = await submit(group, *items("a b"))
    leaver.cancel()
    await planes.crash(ConnectionError("gone"))
    assert leaver.cancelled()
    assert isinstance(stayer.exception(), ConnectionError)


async def test_leaving_waits_until_everything_is_settled() -> None:
    planes = Planes()
    group = commit(planes)
    callers = await submit(group, Item("a")) + await submit(group, *items("b c"))
    leaving = asyncio.create_task(group.__aexit__())
    await settled()
    await planes.land()
    assert not leaving.done()
    await planes.land()
    await leaving
    assert [caller.result() for caller in callers] == [f"{name} is written" for name in "abc"]


async def test_leaving_while_idle_waits_for_nothing() -> None:
    async with commit(Planes()):
        pass


async def test_flights_shared_by_two_kinds_are_never_exceeded() -> None:
    planes = Planes()
    flights = asyncio.Semaphore(2)
    mails, pushes = (GroupCommit(planes.flush, flights=flights, key=key) for _ in range(2))
    await submit(mails, Item("mail 1"))
    await submit(pushes, Item("push 1"))
    await submit(mails, Item("mail 2"))
    await submit(pushes, Item("push 2"))
    assert planes.groups == [["mail 1"], ["push 1"]]
    await planes.land()
    assert planes.groups[2:] == [["mail 2"]]
    await planes.land()
    assert planes.groups[3:] == [["push 2"]], "the one that waited longer is next"
    await planes.land_all()


# Random schedules: callers that come and go, and a database that is slow, contended, and refuses bad rows.

MAX_GROUP, MAX_BYTES, FLIGHTS = 4, 12, 2
CONTENDED = 3


@dataclass(eq=False)
class Row:
    """`kind` says by which of two group commits it goes."""

    kind: int
    key: int
    size: int
    bad: bool
    writes: int = 0


@dataclass(frozen=True)
class Leave:
    caller: int


@dataclass(frozen=True)
class Wait:
    rounds: int


Step = Row | Leave | Wait

rows = st.builds(Row, st.integers(0, 1), st.integers(0, 5), st.integers(0, 15), st.sampled_from([False] * 9 + [True]))
schedules = st.lists(
    st.one_of(rows, rows, st.builds(Leave, st.integers(0, 30)), st.builds(Wait, st.integers(0, 5))), max_size=60
)


class Database:
    """Holds every flush against the promises, and writes all of a group or nothing."""

    def __init__(self, weather: Iterable[int]) -> None:
        self._weather = itertools.cycle(weather)
        self._flying: list[set[tuple[int, int]]] = []

    async def flush(self, group: Sequence[Row]) -> Sequence[Row]:
        keys = {(row.kind, row.key) for row in group}
        assert 1 <= len(group) <= MAX_GROUP
        assert len(group) == 1 or sum(row.size for row in group) <= MAX_BYTES
        assert len(keys) == len(group)
        assert all(keys.isdisjoint(others) for others in self._flying)
        assert len(self._flying) < FLIGHTS
        self._flying.append(keys)
        try:
            return await self._write(group)
        finally:
            self._flying.remove(keys)

    async def _write(self, group: Sequence[Row]) -> Sequence[Row]:
        weather = next(self._weather)
        await settled(weather)
        if weather == CONTENDED:
            raise Contention
        if any(row.bad for row in group):
            raise BadItem
        for row in group:
            row.writes += 1
        return group


async def fly(schedule: Sequence[Step], weather: Iterable[int]) -> "list[tuple[Row, asyncio.Task[Row]]]":
    database = Database(weather)
    flights = asyncio.Semaphore(FLIGHTS)
    callers: list[tuple[Row, asyncio.Task[Row]]] = []
    async with open_group(database, flights) as first, open_group(database, flights) as second:
        for step in schedule:
            if isinstance(step, Row):
                row = Row(step.kind, step.key, step.size, step.bad)
                callers.append((row, asyncio.create_task((first, second)[row.kind].submit(row))))
            elif isinstance(step, Wait):
                await settled(step.rounds)
            elif step.caller < len(callers):
                callers[step.caller][1].cancel()
        await settled(2)  # the last ones, too, have submitted before it is left
    await settled(2)
    return callers


def open_group(database: Database, flights: asyncio.Semaphore) -> GroupCommit[Row, Row]:
    return GroupCommit(
        database.flush,
        flights=flights,
        key=lambda row: row.key,
        size=lambda row: row.size,
        max_group=MAX_GROUP,
        max_bytes=MAX_BYTES,
    )


@settings(deadline=None)
@given(schedule=schedules, weather=st.lists(st.integers(0, CONTENDED), min_size=1, max_size=20))
def test_any_schedule_keeps_the_promises(schedule: Sequence[Step], weather: Sequence[int]) -> None:
    with no_pauses():
        callers = asyncio.run(fly(schedule, weather))
    for row, caller in callers:
        assert caller.done(), "left waiting"
        if caller.cancelled():
            assert row.writes <= 1
        elif error := caller.exception():
            assert isinstance(error, (BadItem, Contention) if row.bad else Contention), repr(error)
            assert row.writes == 0
        else:
            assert caller.result() is row
            assert row.writes == 1
