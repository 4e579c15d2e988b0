"""Many notifications, in batches that are under way together, each repeated until it is known what became of it."""

import asyncio
import random
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeAlias, TypeVar

import grpc

from notifyqueue.errors import NotifyQueueError, from_refusal
from notifyqueue.v1.scheduler_pb2 import BatchResult, ScheduleNotificationRequest

IN_FLIGHT = 4
MAX_ITEMS = 500
MAX_BYTES = 1024 * 1024
PER_ITEM = 8  # bytes of a batch around each of its requests, at most

PATIENCE = timedelta(minutes=5)
FIRST_PAUSE = 0.5  # of seconds; doubles up to
LONGEST_PAUSE = 30.0

# Refusals of a whole batch that may be for one of its items.
FOR_ONE = frozenset({grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED})

Tag = TypeVar("Tag")

Send: TypeAlias = Callable[[Sequence[ScheduleNotificationRequest]], Awaitable[Sequence[BatchResult]]]
OnWait: TypeAlias = Callable[[NotifyQueueError, timedelta], None]


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Tag]):
    """What became of one request: `tag` says which. It is stored unless there is an `error`."""

    tag: Tag
    request: ScheduleNotificationRequest
    notification_id: str = ""
    replayed: bool = False
    error: NotifyQueueError | None = None


@dataclass(frozen=True, slots=True)
class _Batch(Generic[Tag]):
    items: Sequence[tuple[Tag, ScheduleNotificationRequest]]
    tries: int = 0  # since an item of it was last settled
    pause: float = 0.0  # seconds before the next try
    waited: float = 0.0  # seconds, since then


async def schedule_all(
    send: Send,
    items: Iterable[tuple[Tag, ScheduleNotificationRequest]],
    *,
    patience: timedelta = PATIENCE,
    on_wait: OnWait | None = None,
) -> AsyncGenerator[Outcome[Tag], None]:
    """What became of each item, as it becomes known. Takes from `items` only what is under way.

    What is refused for a while (UNAVAILABLE, no answer in time, too much to do) is repeated with growing pauses, never
    sooner than the server asks, and given up with that error once nothing of its batch went in for `patience`. An error
    that concerns everything, as a key that is not known, is raised. `on_wait` is told of each try that settled nothing
    and will be repeated: why, and for how much longer.
    """
    fresh, again = _packed(items), deque[_Batch[Tag]]()
    running: set[asyncio.Task[tuple[list[Outcome[Tag]], list[_Batch[Tag]]]]] = set()
    done = running
    try:
        while True:
            while len(running) < IN_FLIGHT and (batch := again.popleft() if again else next(fresh, None)):
                running.add(asyncio.create_task(_try(send, batch, patience.total_seconds(), on_wait)))
            if not running:
                return
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                settled, rest = task.result()
                again.extend(rest)
                for outcome in settled:
                    yield outcome
    finally:
        for task in running:
            task.cancel()
        # Of calls that were refused at once the first tells, and asyncio would print what nobody has asked the others.
        await asyncio.gather(*running, *done, return_exceptions=True)


def _packed(items: Iterable[tuple[Tag, ScheduleNotificationRequest]]) -> Iterator[_Batch[Tag]]:
    batch: list[tuple[Tag, ScheduleNotificationRequest]] = []
    size = 0
    for tag, request in items:
        bytes_ = request.ByteSize() + PER_ITEM
        if batch and (len(batch) == MAX_ITEMS or size + bytes_ > MAX_BYTES):
            yield _Batch(batch)
            batch, size = [], 0
        batch.append((tag, request))
        size += bytes_
    if batch:
        yield _Batch(batch)


async def _try(
    send: Send, batch: _Batch[Tag], patience: float, on_wait: OnWait | None
) -> tuple[list[Outcome[Tag]], list[_Batch[Tag]]]:
    """One call: what is settled by it, and what is to be tried again."""
    await asyncio.sleep(batch.pause)
    began = asyncio.get_running_loop().time()
    try:
        results = await send([request for _, request in batch.items])
    except NotifyQueueError as error:
        if not error.temporary:
            return _judged(batch, error)
        found = [Outcome(tag, request, error=error) for tag, request in batch.items]
    else:
        found = [_outcome(tag, request, result) for (tag, request), result in zip(batch.items, results, strict=True)]
    settled = [outcome for outcome in found if outcome.error is None or not outcome.error.temporary]
    later = [outcome for outcome in found if outcome.error and outcome.error.temporary]
    waited = batch.waited + batch.pause + asyncio.get_running_loop().time() - began
    if not later or (not settled and waited >= patience):
        return found, []
    if on_wait and not settled and later[0].error:
        on_wait(later[0].error, timedelta(seconds=patience - waited))
    tries, waited = (0, 0.0) if settled else (batch.tries, waited)
    return settled, [_Batch([(each.tag, each.request) for each in later], tries + 1, _pause(tries, later), waited)]


def _outcome(tag: Tag, request: ScheduleNotificationRequest, result: BatchResult) -> Outcome[Tag]:
    if result.WhichOneof("result") == "accepted":
        return Outcome(tag, request, result.accepted.notification_id, result.accepted.replayed)
    return Outcome(tag, request, error=from_refusal(result.refused))


def _pause(tries: int, later: Sequence[Outcome[Tag]]) -> float:
    asked = [found.error.retry_after.total_seconds() for found in later if found.error and found.error.retry_after]
    backoff = min(FIRST_PAUSE * 2.0**tries, LONGEST_PAUSE) * random.uniform(0.5, 1.0)
    return max(backoff, *asked, 0.0)


def _judged(batch: _Batch[Tag], error: NotifyQueueError) -> tuple[list[Outcome[Tag]], list[_Batch[Tag]]]:
    """A refusal of the whole is for one item, which halving finds, or is raised."""
    if error.code not in FOR_ONE:
        raise error
    if len(batch.items) == 1:
        ((tag, request),) = batch.items
        return [Outcome(tag, request, error=error)], []
    middle = len(batch.items) // 2
    return [], [_Batch(batch.items[:middle]), _Batch(batch.items[middle:])]
