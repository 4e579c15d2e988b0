"""Many notifications: how they are packed, how many are under way, and what is repeated until it is known."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Any, TypeAlias

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from notifyqueue import NotifyQueueError, Outcome, ScheduleNotificationRequest, SmsContent, batch, errors
from notifyqueue.batch import schedule_all
from notifyqueue.v1 import errors_pb2
from notifyqueue.v1.scheduler_pb2 import BatchAccepted, BatchRefused, BatchResult
from tests.waiting import settled

Requests: TypeAlias = Sequence[ScheduleNotificationRequest]

BUSY = BatchResult(
    refused=BatchRefused(
        code=8, reason=errors_pb2.ERROR_REASON_SERVER_OVERLOADED, message="busy", retry_delay=Duration(seconds=7)
    )
)
INVALID = BatchResult(refused=BatchRefused(code=3, reason=errors_pb2.ERROR_REASON_REQUEST_INVALID, message="no"))
AWAY = errors.Unavailable("gone", code=grpc.StatusCode.UNAVAILABLE)


def requests(count: int, text: str = "") -> list[tuple[int, ScheduleNotificationRequest]]:
    return [
        (number, ScheduleNotificationRequest(idempotency_key=f"k{number}", sms=SmsContent(text=text)))
        for number in range(count)
    ]


def accepted(request: ScheduleNotificationRequest) -> BatchResult:
    return BatchResult(accepted=BatchAccepted(notification_id=f"id of {request.idempotency_key}"))


class Server:
    """Answers item by item what `judge` says, and keeps what it was asked."""

    def __init__(self, judge: Callable[[ScheduleNotificationRequest], BatchResult] = accepted) -> None:
        self.judge = judge
        self.batches: list[list[str]] = []

    async def __call__(self, given: Requests) -> Sequence[BatchResult]:
        self.batches.append([request.idempotency_key for request in given])
        return [self.judge(request) for request in given]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made, none of which takes its time."""
    made: list[float] = []
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def paused(seconds: float) -> None:
        if seconds:
            made.append(seconds)
        await sleep(0)

    monkeypatch.setattr("notifyqueue.batch.asyncio.sleep", paused)
    return made


async def outcomes(
    server: Callable[[Requests], Awaitable[Sequence[BatchResult]]], count: int, patience: timedelta = batch.PATIENCE
) -> dict[int, Outcome[int]]:
    found = [outcome async for outcome in schedule_all(server, requests(count), patience=patience)]
    assert len(found) == len({outcome.tag for outcome in found}), "an item has one outcome"
    return {outcome.tag: outcome for outcome in found}


async def test_every_item_is_told_what_became_of_it() -> None:
    server = Server(lambda request: INVALID if request.idempotency_key == "k3" else accepted(request))
    found = await outcomes(server, 1_234)
    assert sorted(found) == list(range(1_234))
    assert [len(each) for each in server.batches] == [500, 500, 234]
    assert found[7].notification_id == "id of k7"
    assert isinstance(found[3].error, errors.RequestInvalid)


async def test_a_batch_is_no_larger_than_a_mebibyte() -> None:
    sizes = []

    async def send(given: Requests) -> Sequence[BatchResult]:
        sizes.append(sum(request.ByteSize() for request in given))
        return [accepted(request) for request in given]

    found = [outcome async for outcome in schedule_all(send, requests(100, "x" * 60_000))]
    assert len(found) == 100
    assert len(sizes) == 6
    assert max(sizes) <= 1024 * 1024


async def test_an_item_that_is_larger_than_a_batch_goes_alone() -> None:
    server = Server()
    items = [*requests(1), (1, ScheduleNotificationRequest(sms=SmsContent(text="x" * 2_000_000)))]
    assert len([outcome async for outcome in schedule_all(server, items)]) == 2
    assert len(server.batches) == 2


async def test_four_are_under_way_and_no_more_is_taken() -> None:
    under_way, taken = 0, 0
    go_on = asyncio.Event()

    def items() -> Iterator[tuple[int, ScheduleNotificationRequest]]:
        nonlocal taken
        for item in requests(10_000):
            taken += 1
            yield item

    async def send(given: Requests) -> Sequence[BatchResult]:
        nonlocal under_way
        under_way += 1
        await go_on.wait()
        under_way -= 1
        return [accepted(request) for request in given]

    async def run() -> int:
        return len([outcome async for outcome in schedule_all(send, items())])

    task = asyncio.create_task(run())
    await settled()
    assert under_way == 4
    assert taken <= 4 * 500 + 1
    go_on.set()
    assert await task == 10_000


async def test_what_is_refused_for_a_while_is_repeated_alone_and_not_sooner_than_asked(pauses: list[float]) -> None:
    seen: list[str] = []

    def judge(request: ScheduleNotificationRequest) -> BatchResult:
        seen.append(request.idempotency_key)
        return BUSY if request.idempotency_key == "k1" and seen.count("k1") < 3 else accepted(request)

    server = Server(judge)
    found = await outcomes(server, 3)
    assert all(outcome.error is None for outcome in found.values())
    assert server.batches == [["k0", "k1", "k2"], ["k1"], ["k1"]]
    assert pauses == [7.0, 7.0]


async def test_a_batch_that_nobody_answered_is_repeated_with_growing_pauses(pauses: list[float]) -> None:
    server, calls = Server(), 0

    async def send(given: Requests) -> Sequence[BatchResult]:
        nonlocal calls
        calls += 1
        if calls < 9:
            raise AWAY
        return await server(given)

    assert len(await outcomes(send, 3)) == 3
    assert len(pauses) == 8
    for place, pause in enumerate(pauses):
        longest = min(0.5 * 2**place, 30.0)
        assert longest / 2 <= pause <= longest


async def test_patience_ends_with_the_error_of_each_item(pauses: list[float]) -> None:
    async def send(_: Requests) -> Sequence[BatchResult]:
        raise AWAY

    found = await outcomes(send, 3, patience=timedelta(seconds=20))
    assert [outcome.error for outcome in found.values()] == [AWAY] * 3
    assert 20 <= sum(pauses) <= 20 + batch.LONGEST_PAUSE


async def test_patience_begins_again_when_something_goes_in(pauses: list[float]) -> None:
    calls = 0

    async def send(given: Requests) -> Sequence[BatchResult]:
        nonlocal calls
        calls += 1  # every other one accepts an item
        return [accepted(given[0]) if calls % 2 else BUSY, *([BUSY] * (len(given) - 1))]

    found = await outcomes(send, 10, patience=timedelta(seconds=10))
    assert all(outcome.error is None for outcome in found.values())
    assert sum(pauses) > 100


async def test_what_concerns_everything_is_raised_and_nothing_goes_on() -> None:
    cancelled = 0

    async def send(given: Requests) -> Sequence[BatchResult]:
        nonlocal cancelled
        if given[0].idempotency_key == "k500":
            raise errors.RoleMissing("no", code=grpc.StatusCode.PERMISSION_DENIED)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled += 1
            raise
        return []

    with pytest.raises(errors.RoleMissing):
        await outcomes(send, 2_000)
    assert cancelled == 3


async def test_one_item_that_spoils_its_batch_costs_only_itself() -> None:
    async def send(given: Requests) -> Sequence[BatchResult]:
        if any(request.idempotency_key == "k321" for request in given):
            raise errors.RequestInvalid("requests[321]: no", code=grpc.StatusCode.INVALID_ARGUMENT)
        return [accepted(request) for request in given]

    found = await outcomes(send, 500)
    assert [tag for tag, outcome in found.items() if outcome.error] == [321]


async def test_leaving_ends_what_is_under_way() -> None:
    tasks_before = asyncio.all_tasks()

    async def send(given: Requests) -> Sequence[BatchResult]:
        if given[0].idempotency_key != "k0":
            await asyncio.Event().wait()
        return [accepted(request) for request in given]

    async with aclosing(schedule_all(send, requests(2_000))) as found:
        assert (await anext(found)).tag == 0
    assert asyncio.all_tasks() == tasks_before


async def test_of_calls_that_are_refused_at_once_one_tells_and_none_is_printed() -> None:
    printed: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: printed.append(context))

    async def send(_: Requests) -> Sequence[BatchResult]:
        raise errors.RoleMissing("refused", code=grpc.StatusCode.PERMISSION_DENIED)

    with pytest.raises(errors.RoleMissing):
        await outcomes(send, 1_500)
    gc.collect()
    assert printed == []


async def test_an_answer_of_another_length_is_no_answer() -> None:
    async def send(_: Requests) -> Sequence[BatchResult]:
        return []

    with pytest.raises((NotifyQueueError, ValueError)):
        await outcomes(send, 1)


@pytest.mark.usefixtures("pauses")
async def test_whoever_waits_is_told_why_and_for_how_much_longer() -> None:
    told: list[tuple[NotifyQueueError, timedelta]] = []
    tries = iter([AWAY, AWAY])

    async def send(given: Requests) -> Sequence[BatchResult]:
        if error := next(tries, None):
            raise error
        return [accepted(request) for request in given]

    all_ = schedule_all(send, requests(3), on_wait=lambda error, left: told.append((error, left)))
    assert len([outcome async for outcome in all_]) == 3
    (first, left), (second, less) = told
    assert first is second is AWAY
    assert batch.PATIENCE >= left > less
