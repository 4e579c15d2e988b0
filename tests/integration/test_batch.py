"""A batch is its requests, each on its own: what one is answered, it would have been answered alone."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2

from notifyqueue.v1 import errors_pb2, scheduler_pb2, scheduler_pb2_grpc
from services.scheduler.batch import SLICE
from services.scheduler.store import Store
from tests.integration.conftest import StartScheduler
from tests.notifications import Notifications

Scheduler = scheduler_pb2_grpc.SchedulerStub
Request = scheduler_pb2.ScheduleNotificationRequest
Result = scheduler_pb2.BatchResult

MAX_MESSAGE = 4 * 1024 * 1024
UNKNOWN_FIELD = b"\xf8\x07\x01"
NOBODY = "postgresql://nobody@127.0.0.1:1/nothing"


def schedule(key: str, **fields: Any) -> Request:
    least: dict[str, Any] = {"address": "someone@example.com"}
    if not fields.keys() & {"sms", "push"}:
        least["email"] = {"subject": "Hello", "text": "How are you?"}
    return Request(idempotency_key=key, **least | fields)


def batch(requests: Sequence[Request]) -> scheduler_pb2.BatchScheduleNotificationsRequest:
    return scheduler_pb2.BatchScheduleNotificationsRequest(requests=requests)


async def results_of(scheduler: Scheduler, *requests: Request) -> Sequence[Result]:
    return (await scheduler.BatchScheduleNotifications(batch(requests))).results


def replayed(results: Sequence[Result]) -> list[bool]:
    assert all(result.HasField("accepted") for result in results), results
    return [result.accepted.replayed for result in results]


def unknown(request: Request) -> Request:
    request.MergeFromString(UNKNOWN_FIELD)
    return request


async def test_results_stand_in_the_order_of_the_requests(scheduler: Scheduler, notifications: Notifications) -> None:
    keys = [f"{number}" for number in range(700)]
    results = await results_of(scheduler, *map(schedule, keys))
    assert replayed(results) == [False] * len(keys)
    rows = await notifications.connection.fetch("SELECT idempotency_key, id FROM notifyqueue.notifications")
    stored = {row["idempotency_key"]: str(row["id"]) for row in rows}
    assert [result.accepted.notification_id for result in results] == [stored[key] for key in keys]


async def test_a_batch_is_written_in_groups(scheduler: Scheduler, notifications: Notifications) -> None:
    await results_of(scheduler, *[schedule(f"{number}") for number in range(1_000)])
    transactions = "SELECT count(DISTINCT xmin::text) FROM notifyqueue.notifications"
    assert await notifications.connection.fetchval(transactions) <= 1_000 / SLICE
    assert await notifications.statuses() == {"PENDING": 1_000}


async def test_a_batch_has_every_channel(scheduler: Scheduler, notifications: Notifications) -> None:
    requests = [
        schedule("mail"),
        schedule("text", address="+44 (0)7700 900123", sms={"text": "Hello"}),
        schedule("push", address="token", push={"title": "Hello"}),
    ]
    assert replayed(await results_of(scheduler, *requests)) == [False] * 3
    rows = await notifications.connection.fetch("SELECT channel, address FROM notifyqueue.notifications ORDER BY id")
    assert {tuple(row) for row in rows} == {
        ("EMAIL", "someone@example.com"),
        ("SMS", "+447700900123"),
        ("PUSH", "token"),
    }


async def test_the_same_batch_again_answers_what_is_stored(scheduler: Scheduler, notifications: Notifications) -> None:
    requests = [schedule(f"{number}") for number in range(10)]
    first = await results_of(scheduler, *requests)
    again = await results_of(scheduler, *requests)
    assert (replayed(first), replayed(again)) == ([False] * 10, [True] * 10)
    assert [result.accepted.notification_id for result in again] == [
        result.accepted.notification_id for result in first
    ]
    assert await notifications.statuses() == {"PENDING": 10}


async def test_a_key_that_is_there_twice_is_answered_as_if_one_came_after_the_other(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    for round_ in range(10):
        key = f"key {round_}"
        first, _, again, other = await results_of(
            scheduler, schedule(key), schedule(f"neighbour {round_}"), schedule(key), schedule(key, reference="other")
        )
        assert replayed([first, again]) == [False, True]
        assert first.accepted.notification_id == again.accepted.notification_id
        assert other.refused.reason == errors_pb2.ERROR_REASON_IDEMPOTENCY_KEY_REUSED
        assert other.refused.metadata == {"notification_id": first.accepted.notification_id}
    assert await notifications.statuses() == {"PENDING": 20}


async def test_a_key_that_is_there_many_times_is_looked_up_once(
    scheduler: Scheduler, notifications: Notifications, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[object] = []
    look_up = Store.look_up_keys

    async def counted(self: Store, requests: Sequence[Any]) -> Any:
        looked.extend(requests)
        return await look_up(self, requests)

    monkeypatch.setattr(Store, "look_up_keys", counted)
    results = await results_of(scheduler, *[schedule("key")] * 100)
    assert replayed(results) == [False, *[True] * 99]
    assert len({result.accepted.notification_id for result in results}) == 1
    assert len(looked) == 1
    assert await notifications.statuses() == {"PENDING": 1}


async def test_of_two_requests_under_a_key_the_one_that_may_be_is_accepted(scheduler: Scheduler) -> None:
    late = schedule("key", delay=timedelta(days=366))
    refused, accepted = await results_of(scheduler, late, schedule("key"))
    assert refused.refused.reason == errors_pb2.ERROR_REASON_REQUEST_INVALID
    assert not accepted.accepted.replayed


WRONG: Mapping[str, Request] = {
    "nothing": Request(),
    "NUL": schedule("nul", reference="\0"),
    "an unknown field": unknown(schedule("unknown")),
    "an unknown priority": schedule("priority", priority=7),
    "a time before the year 1": schedule("time", due_time={"seconds": -62_135_596_801}),
    "several faults": schedule("", address="x", category="c" * 65),
    "due too late": schedule("late", due_time={"seconds": 253_402_300_799}),
    "a number of no country": schedule("national", address="07700 900123", sms={"text": "Hello"}),
    "a key that is taken": schedule("taken", reference="other"),
    "a large one": schedule("large", email={"subject": "Hello", "text": "t" * 256 * 1024}),
}


async def test_what_is_refused_is_told_what_it_would_be_alone_and_costs_the_others_nothing(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    await scheduler.ScheduleNotification(schedule("taken"))
    alone = {name: await refusal(scheduler, request) for name, request in WRONG.items()}
    requests = [request for wrong in WRONG.values() for request in (wrong, schedule(f"good {id(wrong)}"))]
    results = await results_of(scheduler, *requests)
    assert {name: result.refused for name, result in zip(WRONG, results[::2], strict=True)} == alone
    assert replayed(results[1::2]) == [False] * len(WRONG)
    assert await notifications.statuses() == {"PENDING": 1 + len(WRONG)}


async def refusal(scheduler: Scheduler, request: Request) -> scheduler_pb2.BatchRefused:
    """What a call of its own is refused with, in the words of a batch."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await scheduler.ScheduleNotification(request)
    trailers: dict[str, Any] = dict(error.value.trailing_metadata())
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status.details:
        detail.Unpack(info)
        detail.Unpack(bad)
    return scheduler_pb2.BatchRefused(
        code=status.code,
        reason=errors_pb2.ErrorReason.Value(f"ERROR_REASON_{info.reason}"),
        message=status.message,
        metadata=info.metadata,
        violations=[
            scheduler_pb2.FieldViolation(field=wrong.field, description=wrong.description)
            for wrong in bad.field_violations
        ],
    )


async def test_the_worst_answer_fits_into_a_message(scheduler: Scheduler) -> None:
    wrong = schedule("", address="x", reference="\0", category="\0", labels={"\0": "\0"})
    wrong.due_time.MergeFromString(bytes([0xF8, 0xFF, 0xFF, 0xFF, 0x0F, 1]) * 100)  # fields with long numbers
    response = await scheduler.BatchScheduleNotifications(batch([wrong] * 1_000))
    assert {len(result.refused.violations) for result in response.results} == {20}
    assert response.ByteSize() < MAX_MESSAGE


async def test_a_message_that_is_too_large_is_told_so(scheduler: Scheduler, notifications: Notifications) -> None:
    request = batch([schedule(f"{number}", reference="r" * 255) for number in range(1_000)])
    request.requests[0].email.text = "t" * (MAX_MESSAGE - request.ByteSize() + 100)
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await scheduler.BatchScheduleNotifications(request)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.value.details() == f"request: has {request.ByteSize()} bytes, more than {MAX_MESSAGE}"
    assert dict(error.value.trailing_metadata())["error-reason"] == "REQUEST_INVALID"
    assert await notifications.statuses() == {}


async def test_where_the_database_answered_nothing_the_call_fails(start_scheduler: StartScheduler) -> None:
    scheduler = scheduler_pb2_grpc.SchedulerStub(await start_scheduler(NOBODY))
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await results_of(scheduler, schedule("one"), schedule("two"))
    assert error.value.code() is grpc.StatusCode.UNAVAILABLE
    assert dict(error.value.trailing_metadata())["error-reason"] == "DATABASE_UNAVAILABLE"


async def test_where_something_was_answered_the_rest_is_told_to_come_back(start_scheduler: StartScheduler) -> None:
    scheduler = scheduler_pb2_grpc.SchedulerStub(await start_scheduler(NOBODY))
    invalid, *others = await results_of(scheduler, schedule(""), schedule("one"), schedule("two"))
    assert invalid.refused.reason == errors_pb2.ERROR_REASON_REQUEST_INVALID
    assert {other.refused.reason for other in others} == {errors_pb2.ERROR_REASON_DATABASE_UNAVAILABLE}
    assert {other.refused.code for other in others} == {14}  # UNAVAILABLE
    assert all(other.refused.retry_delay.ToTimedelta() == timedelta(seconds=1) for other in others)


async def test_batches_at_once_share_their_keys_without_a_double(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    requests = [schedule(f"{number}") for number in range(300)]
    one, other = await asyncio.gather(results_of(scheduler, *requests), results_of(scheduler, *requests[::-1]))
    ours, theirs = replayed(one), replayed(other)[::-1]
    assert all(first != second for first, second in zip(ours, theirs, strict=True))
    assert await notifications.statuses() == {"PENDING": 300}
