"""Group commit: concurrent operations of a kind share one round trip."""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from shared.clock import tick
from shared.errors import ServerOverloaded
from shared.telemetry import metrics

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_TRIES = 6


class BadItem(Exception):
    """One item of a group cannot be written, whatever is tried; the others might."""


class Contention(Exception):
    """The group met another transaction and was rolled back; the same again may succeed."""


@dataclass(slots=True)
class _Passenger(Generic[Item, Result]):
    item: Item
    key: Hashable
    size: int
    result: "asyncio.Future[Result]"
    since: float


class GroupCommit(Generic[Item, Result]):
    """Merges what waits, without timers.

    An operation that finds a free flight leaves at once and alone. While every flight is taken, operations gather, and
    leave together in the next one. So an idle process adds no latency, and a busy one sends few, large statements.

    `flights` is shared by all kinds of a process: as many as there are connections to fly on. Two operations with equal
    `key` never share a flight and never fly at the same time.
    """

    def __init__(
        self,
        flush: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
        *,
        flights: asyncio.Semaphore,
        key: Callable[[Item], Hashable],
        size: Callable[[Item], int] = lambda _: 0,
        max_group: int = 500,
        max_bytes: int = 4 * 1024 * 1024,
        max_waiting: int = 10_000,
        name: str = "other",
    ) -> None:
        """`flush` answers one result per item, in order. It raises BadItem when one of them is at fault: the group is
        halved until that one fails alone. It raises Contention to be called again with the same group. `name` is what
        its groups are measured as.
        """
        self._flush = flush
        self._flights = flights
        self._key = key
        self._size = size
        self._max_group = max_group
        self._max_bytes = max_bytes
        self._max_waiting = max_waiting
        self._name = name
        self._waiting: deque[_Passenger[Item, Result]] = deque()
        self._flying: set[Hashable] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._boarding = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Returns when everything submitted has been settled."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def submit(self, item: Item) -> Result:
        """The item's result, once its group has committed. Raises ServerOverloaded, BadItem, or what `flush` raised.

        A caller that is cancelled before its group leaves takes its item along; later the item is written all the same.
        """
        if len(self._waiting) >= self._max_waiting:
            raise ServerOverloaded
        result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Passenger(item, self._key(item), self._size(item), result, tick()))
        self._call_boarding()
        return await result

    def _call_boarding(self) -> None:
        if self._waiting and not self._boarding:
            self._boarding = True
            self._spawn(self._board())

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _board(self) -> None:
        try:
            while self._waiting:
                await self._flights.acquire()
                group = self._take()
                if not group:  # all that wait share a key with what is flying, and are called when that lands
                    self._flights.release()
                    return
                self._spawn(self._fly(group))
        finally:
            self._boarding = False

    def _take(self) -> list[_Passenger[Item, Result]]:
        group: list[_Passenger[Item, Result]] = []
        stay: list[_Passenger[Item, Result]] = []
        room = self._max_bytes
        while self._waiting and len(group) < self._max_group:
            passenger = self._waiting.popleft()
            if passenger.result.cancelled():
                continue
            if passenger.key in self._flying:
                stay.append(passenger)
            elif group and passenger.size > room:
                stay.append(passenger)
                break
            else:
                room -= passenger.size
                self._flying.add(passenger.key)
                group.append(passenger)
        self._waiting.extendleft(reversed(stay))
        return group

    async def _fly(self, group: list[_Passenger[Item, Result]]) -> None:
        left = tick()
        metrics.GROUP_SIZE.record(len(group), self._name)
        metrics.GROUP_WAIT.record(left - group[0].since, self._name)
        try:
            await self._deliver(group)
        finally:
            metrics.GROUP_TIME.record(tick() - left, self._name)
            self._flying.difference_update(passenger.key for passenger in group)
            self._flights.release()
            self._call_boarding()

    async def _deliver(self, group: list[_Passenger[Item, Result]]) -> None:
        try:
            results = await self._flush_through_contention([passenger.item for passenger in group])
            answers = list(zip(group, results, strict=True))  # a flush that miscounts must leave nobody waiting
        except BadItem as error:
            if len(group) == 1:
                _settle(group[0], error)
            else:
                middle = len(group) // 2
                await self._deliver(group[:middle])
                await self._deliver(group[middle:])
        except Exception as error:
            for passenger in group:
                _settle(passenger, error)
        else:
            for passenger, result in answers:
                if not passenger.result.done():
                    passenger.result.set_result(result)

    async def _flush_through_contention(self, items: Sequence[Item]) -> Sequence[Result]:
        for tries in range(1, MAX_TRIES):
            try:
                return await self._flush(items)
            except Contention:
                await asyncio.sleep(0.01 * 2**tries * random.uniform(0.5, 1))
        return await self._flush(items)


def _settle(passenger: _Passenger[Item, Result], error: Exception) -> None:
    if not passenger.result.done():  # its caller may have gone
        passenger.result.set_exception(error)
