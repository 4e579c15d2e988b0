"""Batches: requests that are accepted each on its own, and answered together."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from shared.batching import Contention
from shared.errors import ApiError, DatabaseUnavailable, RequestInvalid, Violation

MAX_REQUESTS = 1_000
SLICE = 50  # a thousand at one go would hold up every other call for a third of a second

Request = TypeVar("Request")
Accepted = TypeVar("Accepted")


def check_count(count: int) -> None:
    """Raises RequestInvalid."""
    if not 1 <= count <= MAX_REQUESTS:
        raise RequestInvalid([Violation("requests", f"must have 1 to {MAX_REQUESTS} entries")])


async def answer_all(
    accept: Callable[[Request], Awaitable[Accepted]],
    requests: Iterable[Request],
    told: Callable[[Exception], ApiError],
) -> list[Accepted | ApiError]:
    """What each request is answered or refused with, in their order; they begin in it, too. `told` has the words.

    Raises what all of them failed with, where the database answered none of them.
    """
    tasks: list[asyncio.Task[Accepted | Exception]] = []
    async with asyncio.TaskGroup() as group:
        for request in requests:
            tasks.append(group.create_task(_outcome(accept, request)))
            if len(tasks) % SLICE == 0:
                await asyncio.sleep(0)
    return _answers([task.result() for task in tasks], told)


async def _outcome(accept: Callable[[Request], Awaitable[Accepted]], request: Request) -> Accepted | Exception:
    try:
        return await accept(request)
    except Exception as error:
        return error


def _answers(outcomes: list[Accepted | Exception], told: Callable[[Exception], ApiError]) -> list[Accepted | ApiError]:
    errors = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    if len(errors) == len(outcomes) and all(isinstance(error, DatabaseUnavailable | Contention) for error in errors):
        raise errors[0]
    # A group that failed is one exception of all who were in it, and told once.
    refusals = {id(error): told(error) for error in {id(error): error for error in errors}.values()}
    return [refusals[id(outcome)] if isinstance(outcome, Exception) else outcome for outcome in outcomes]
