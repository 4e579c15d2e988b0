"""Batches: what is told of failures, and what a caller that leaves takes along."""

import asyncio
from collections.abc import Sequence

import pytest

from services.scheduler.batch import MAX_REQUESTS, SLICE, answer_all, check_count
from shared.batching import Contention, GroupCommit
from shared.errors import ApiError, DatabaseUnavailable, Internal, RequestInvalid, ServerOverloaded
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
