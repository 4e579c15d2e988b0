"""Batches: what is told of failures, and what a caller that leaves takes along."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest

from services.scheduler.batch import MAX_REQUESTS, SLICE, WINDOW, Repetitions, answer_all, check_count
from services.scheduler.judging import Accepted, Candidate, candidate
from services.scheduler.notification import Notification, Request
from shared.batching import Contention, GroupCommit
from shared.errors import ApiError, DatabaseUnavailable, Internal, RequestInvalid, ServerOverloaded, Violation
from tests.waiting import settled


class Telling:
    """Has words for exceptions, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Exception] = []

    def __call__(self, error: Exception) -> ApiError:
        self.asked.append(error)
        return error if isinstance(error, ApiError) else Internal()


async def answering(answer: object) -> object:
    if isinstance(answer, Exception):
        raise answer
    return answer


@pytest.mark.parametrize("count", [1, MAX_REQUESTS])
def test_a_batch_has_a_number_of_requests(count: int) -> None:
    check_count(count)


@pytest.mark.parametrize("count", [0, MAX_REQUESTS + 1])
def test_no_batch_has_none_or_too_many(count: int) -> None:
    with pytest.raises(RequestInvalid):
        check_count(count)


async def test_each_call_has_its_own_answer() -> None:
    overloaded, bug = ServerOverloaded(), ValueError("secret")
    first, second, third, fourth = await answer_all(answering, ["a", overloaded, bug, "b"], Telling())
    assert (first, second, fourth) == ("a", overloaded, "b")
    assert isinstance(third, Internal)


async def test_what_a_whole_group_failed_with_is_told_once() -> None:
    away, telling = DatabaseUnavailable(), Telling()
    assert await answer_all(answering, ["a", away, away, away], telling) == ["a", away, away, away]
    assert telling.asked == [away]


@pytest.mark.parametrize("errors", [[DatabaseUnavailable()] * 2, [DatabaseUnavailable(), Contention()]])
async def test_where_the_database_answered_nothing_that_is_the_answer(errors: Sequence[Exception]) -> None:
    with pytest.raises(type(errors[0])):
        await answer_all(answering, errors, Telling())


async def test_where_all_were_refused_for_other_reasons_each_is_told_its_own() -> None:
    errors = [ServerOverloaded(), DatabaseUnavailable()]
    assert await answer_all(answering, errors, Telling()) == errors


async def test_who_leaves_takes_along_what_has_not_left() -> None:
    flown: list[int] = []
    landing = asyncio.Event()

    async def flush(items: Sequence[int]) -> Sequence[int]:
        flown.extend(items)
        await landing.wait()
        return items

    async with GroupCommit(flush, flights=asyncio.Semaphore(1), key=lambda item: item, max_group=2) as group:
        call = asyncio.create_task(answer_all(group.submit, range(6), Telling()))
        await settled()
        assert flown == [0, 1]
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        landing.set()
        await settled()
    assert flown == [0, 1]


async def test_a_large_batch_lets_others_have_their_turns() -> None:
    order: list[str] = []

    async def accept(request: int) -> int:
        order.append("batch")
        return request

    async def somebody() -> None:
        for _ in range(5):
            order.append("somebody")
            await asyncio.sleep(0)

    numbers = range(SLICE * 10)
    answers, _ = await asyncio.gather(answer_all(accept, numbers, Telling()), somebody())
    assert answers == list(numbers)
    assert order[-1] == "batch"


class Flights:
    """What a group commit with two flights flew; each lands when it is told to."""

    def __init__(self) -> None:
        self.flown: list[Sequence[object]] = []
        self.landing = asyncio.Event()
        self.group = GroupCommit(self._flush, flights=asyncio.Semaphore(2), key=lambda item: item)

    async def _flush(self, items: Sequence[object]) -> Sequence[object]:
        self.flown.append(items)
        await self.landing.wait()
        return items


async def test_a_single_call_waits_for_a_few_groups_however_much_the_batches_have_still_to_bring() -> None:
    flights, batches = Flights(), 10
    async with flights.group as group:
        calls = [
            asyncio.create_task(answer_all(group.submit, [(batch, n) for n in range(MAX_REQUESTS)], Telling()))
            for batch in range(batches)
        ]
        await settled()
        before = len(flights.flown)
        single = asyncio.create_task(group.submit("single"))
        await settled()
        flights.landing.set()
        await single
        turn = next(number for number, items in enumerate(flights.flown) if "single" in items)
        assert turn - before <= batches * WINDOW / 500
        await asyncio.gather(*calls)
    assert sum(map(len, flights.flown)) == batches * MAX_REQUESTS + 1


async def test_twelve_full_batches_at_once_overload_nothing() -> None:
    flights = Flights()
    async with flights.group as group:
        calls = [
            asyncio.create_task(answer_all(group.submit, [(batch, n) for n in range(MAX_REQUESTS)], Telling()))
            for batch in range(12)
        ]
        await settled()
        flights.landing.set()
        for batch, call in enumerate(calls):
            assert await call == [(batch, n) for n in range(MAX_REQUESTS)]


# Repetitions.


def asked(key: str = "key", **fields: Any) -> Candidate:
    said: dict[str, Any] = {"channel": "SMS", "address": "+447700900123", "content": {"text": "Hello"}, "priority": 2}
    said |= {"due": None, "expiry": None, "at_most_once": False, "category": "", "reference": None, "labels": {}}
    return candidate(Request(tenant="default", idempotency_key=key, **said | fields))


class Queue:
    """Accepts, with the outcomes that it is given first; answers when it is told to."""

    def __init__(self, *outcomes: Exception) -> None:
        self.asked: list[Candidate] = []
        self.gate = asyncio.Event()
        self._outcomes = list(outcomes)

    async def submit(self, candidate: Candidate) -> Accepted:
        self.asked.append(candidate)
        number = len(self.asked)
        await self.gate.wait()
        if self._outcomes:
            raise self._outcomes.pop(0)
        return Accepted(Mock(Notification, id=UUID(int=number)), replayed=False)


async def outcomes(queue: Queue, *candidates: Candidate) -> list[tuple[int, bool] | str]:
    """The number of the notification and whether it was there, or the reason of a refusal."""
    accept: Callable[[Candidate], Awaitable[Accepted]] = Repetitions(queue.submit).accept
    call = asyncio.create_task(answer_all(accept, candidates, Telling()))
    await settled()
    queue.gate.set()
    return [
        (answer.notification.id.int, answer.replayed) if isinstance(answer, Accepted) else answer.reason
        for answer in await call
    ]


async def test_a_thousand_of_one_request_are_one_and_the_others_its_repetitions() -> None:
    queue = Queue()
    told = await outcomes(queue, *[asked()] * MAX_REQUESTS)
    assert told == [(1, False), *[(1, True)] * (MAX_REQUESTS - 1)]
    assert len(queue.asked) == 1


async def test_another_request_under_the_same_key_goes_on_its_own_and_in_order() -> None:
    one, other = asked(), asked(reference="other")
    queue = Queue()
    assert await outcomes(queue, one, other, one, other) == [(1, False), (2, False), (1, True), (2, True)]
    assert queue.asked == [one, other]


async def test_the_same_request_under_another_key_goes_on_its_own() -> None:
    assert await outcomes(Queue(), asked("a"), asked("b")) == [(1, False), (2, False)]


async def test_what_is_refused_is_refused_as_often_as_it_is_there() -> None:
    queue = Queue(RequestInvalid([Violation("ttl", "has passed already")]))
    assert await outcomes(queue, asked(), asked(), asked("good")) == ["REQUEST_INVALID", "REQUEST_INVALID", (2, False)]
    assert len(queue.asked) == 2


async def test_a_batch_that_is_left_leaves_its_repetitions() -> None:
    queue = Queue()
    call = asyncio.create_task(answer_all(Repetitions(queue.submit).accept, [asked()] * 3, Telling()))
    await settled()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
