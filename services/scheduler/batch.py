"""Batches: requests that are accepted each on its own, and answered together."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from services.scheduler import judging
from shared.batching import Contention
from shared.errors import ApiError, DatabaseUnavailable, RequestInvalid, Violation

MAX_REQUESTS = 1_000
SLICE = 50  # a thousand at one go would hold up every other call for a third of a second
# As many of a batch wait at once, so that it is not all of it that a single call has to wait for, and a few batches do
# not fill the queue for everybody. Two flights with half of it each cost little more than one with all of it.
WINDOW = 200

Request = TypeVar("Request")
Accepted = TypeVar("Accepted")


def check_count(count: int) -> None:
    """Raises RequestInvalid."""
    if not 1 <= count <= MAX_REQUESTS:
        raise RequestInvalid([Violation("requests", f"must have 1 to {MAX_REQUESTS} entries")])


class Repetitions:
    """Accepts what a batch has, each request once: the same again is answered what the first was, as replayed.

    On its own it would have to wait for the one before it, and a thousand of them would be a thousand flights.
    """

    def __init__(self, submit: Callable[[judging.Candidate], Awaitable[judging.Accepted]]) -> None:
        self._submit = submit
        self._first: dict[tuple[judging.Key, bytes], asyncio.Future[judging.Accepted | Exception]] = {}

    async def accept(self, candidate: judging.Candidate) -> judging.Accepted:
        same = candidate.request.key, candidate.fingerprint
        if first := self._first.get(same):
            return replace(_raised(await first), replayed=True)
        self._first[same] = first = asyncio.get_running_loop().create_future()
        outcome = await _outcome(self._submit, candidate)
        first.set_result(outcome)
        return _raised(outcome)


async def answer_all(
    accept: Callable[[Request], Awaitable[Accepted]],
    requests: Iterable[Request],
    told: Callable[[Exception], ApiError],
) -> list[Accepted | ApiError]:
    """What each request is answered or refused with, in their order; they begin in it, too. `told` has the words.

    Raises what all of them failed with, where the database answered none of them.
    """
    tasks: list[asyncio.Task[Accepted | Exception]] = []
    room = asyncio.Semaphore(WINDOW)
    async with asyncio.TaskGroup() as group:
        for request in requests:
            await room.acquire()
            tasks.append(group.create_task(_outcome(accept, request)))
            tasks[-1].add_done_callback(lambda _: room.release())
            if len(tasks) % SLICE == 0:
                await asyncio.sleep(0)
    return _answers([task.result() for task in tasks], told)


async def _outcome(accept: Callable[[Request], Awaitable[Accepted]], request: Request) -> Accepted | Exception:
    try:
        return await accept(request)
    except Exception as error:
        return error


def _raised(outcome: Accepted | Exception) -> Accepted:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _answers(outcomes: list[Accepted | Exception], told: Callable[[Exception], ApiError]) -> list[Accepted | ApiError]:
    errors = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    if len(errors) == len(outcomes) and all(isinstance(error, DatabaseUnavailable | Contention) for error in errors):
        raise errors[0]
    # A group that failed is one exception of all who were in it, and told once.
    refusals = {id(error): told(error) for error in {id(error): error for error in errors}.values()}
    return [refusals[id(outcome)] if isinstance(outcome, Exception) else outcome for outcome in outcomes]
