"""The client against a server that answers as it is told: what is repeated, what is raised, and for how long."""

import datetime as dt
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2
from grpc import StatusCode

from notifyqueue import (
    Client,
    EmailContent,
    Notification,
    NotificationFilter,
    NotifyQueueError,
    ScheduleNotificationRequest,
    connect,
    errors,
)
from notifyqueue.errors import Violation
from notifyqueue.processes import connect_dispatcher, connect_worker
from notifyqueue.v1 import dispatcher_pb2, process_pb2, scheduler_pb2, worker_pb2
from tests.certificates import Authority
from tests.scripted_server import Hang, Refusal, Scripted, serving

KEY = "nq_01jabc_a-secret-that-nobody-may-see"
REQUEST = ScheduleNotificationRequest(
    idempotency_key="order-17", address="you@example.com", email=EmailContent(subject="s", text="t")
)
DONE = scheduler_pb2.ScheduleNotificationResponse(replayed=True)
AWAY = Refusal(
    StatusCode.UNAVAILABLE,
    "DATABASE_UNAVAILABLE",
    details=(
        error_details_pb2.RequestInfo(request_id="r-1"),
        error_details_pb2.RetryInfo(retry_delay=Duration(seconds=1)),
    ),
)


@pytest.fixture
def server() -> Iterator[Scripted]:
    with serving() as scripted:
        yield scripted


@pytest.fixture
async def client(server: Scripted) -> AsyncIterator[Client]:
    async with connect(server.address, api_key=KEY) as client:
        yield client


async def test_what_is_unavailable_is_repeated(server: Scripted, client: Client) -> None:
    server.answers("ScheduleNotification", AWAY, AWAY, DONE)
    assert (await client.schedule(REQUEST)).replayed
    assert server.asked["ScheduleNotification"] == [REQUEST] * 3


async def test_what_takes_so_many_of_what_fits_is_never_repeated_by_itself(server: Scripted, client: Client) -> None:
    """The answer may be all that was lost, and the same call again takes the next ones."""
    server.answers("BulkRedriveNotifications", AWAY)
    server.answers("BulkCancelNotifications", AWAY)
    with pytest.raises(errors.DatabaseUnavailable):
        await client.bulk_redrive(NotificationFilter(reference="order"), limit=3)
    with pytest.raises(errors.DatabaseUnavailable):
        await client.bulk_cancel(NotificationFilter(reference="order"), limit=3)
    assert {method: len(asked) for method, asked in server.asked.items()} == {
        "BulkRedriveNotifications": 1,
        "BulkCancelNotifications": 1,
    }


async def test_four_times_at_most(server: Scripted, client: Client) -> None:
    server.answers("ScheduleNotification", AWAY)
    with pytest.raises(errors.DatabaseUnavailable) as raised:
        await client.schedule(REQUEST)
    assert len(server.asked["ScheduleNotification"]) == 4
    assert raised.value.retry_after == timedelta(seconds=1)
    assert raised.value.request_id == "r-1"
    assert raised.value.temporary


async def test_a_large_batch_is_repeated_too(server: Scripted, client: Client) -> None:
    large = [
        ScheduleNotificationRequest(idempotency_key=str(number), email=EmailContent(text="x" * 60_000))
        for number in range(50)
    ]
    answer = scheduler_pb2.BatchScheduleNotificationsResponse(results=[scheduler_pb2.BatchResult()] * 50)
    server.answers("BatchScheduleNotifications", AWAY, answer)
    assert len(await client.batch(large)) == 50


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (StatusCode.INTERNAL, "INTERNAL"),
        (StatusCode.RESOURCE_EXHAUSTED, "SERVER_OVERLOADED"),
        (StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"),
        (StatusCode.UNKNOWN, ""),
        (StatusCode.ABORTED, ""),
    ],
)
async def test_nothing_else_is_repeated(server: Scripted, client: Client, code: StatusCode, reason: str) -> None:
    again = error_details_pb2.RetryInfo(retry_delay=Duration(nanos=1_000_000))
    server.answers("ScheduleNotification", Refusal(code, reason, details=(again,)), DONE)
    with pytest.raises(NotifyQueueError) as raised:
        await client.schedule(REQUEST)
    assert (raised.value.code, raised.value.reason) == (code, reason)
    assert len(server.asked["ScheduleNotification"]) == 1


async def test_a_call_without_an_answer_ends_at_its_deadline(server: Scripted) -> None:
    server.answers("ScheduleNotification", Hang())
    async with connect(server.address, timeout=timedelta(milliseconds=200)) as client:
        with pytest.raises(errors.DeadlineExceeded) as raised:
            await client.schedule(REQUEST)
    assert raised.value.temporary
    assert len(server.asked["ScheduleNotification"]) == 1


async def test_repetitions_end_at_the_deadline(server: Scripted) -> None:
    server.answers("ScheduleNotification", AWAY)
    async with connect(server.address, timeout=timedelta(milliseconds=100)) as client:
        with pytest.raises(NotifyQueueError):
            await client.schedule(REQUEST)
    assert len(server.asked["ScheduleNotification"]) < 4


async def test_nobody_there_is_unavailable_without_a_reason() -> None:
    with serving() as gone:
        address = gone.address
    async with connect(address) as client:
        with pytest.raises(errors.Unavailable) as raised:
            await client.stats()
    assert raised.value.reason == ""


async def test_every_call_has_the_key_and_no_error_says_it(
    server: Scripted, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.answers("GetQueueStats", scheduler_pb2.GetQueueStatsResponse())
    server.answers("CancelNotification", Refusal(StatusCode.UNAUTHENTICATED, "CREDENTIAL_INVALID"))
    await client.stats()
    with pytest.raises(errors.CredentialInvalid) as raised:
        await client.cancel(idempotency_key="order-17")
    assert [found["authorization"] for found in server.metadata] == [f"Bearer {KEY}"] * 2
    cause = raised.value.__cause__
    assert KEY not in "".join(map(repr, (raised.value, cause, client, caplog.text, vars(raised.value))))


async def test_without_a_key_none_is_sent(server: Scripted) -> None:
    server.answers("GetQueueStats", scheduler_pb2.GetQueueStatsResponse())
    async with connect(server.address) as client:
        await client.stats()
    assert "authorization" not in server.metadata[0]


@pytest.mark.parametrize("key", ["", "a secret", "secret\n", "sécret", "s" * 513])
def test_what_is_no_key_is_refused_without_repeating_it(key: str) -> None:
    with pytest.raises(ValueError, match="api_key: has characters") as raised:
        connect("127.0.0.1:1", api_key=key)
    assert not key or key not in str(raised.value)


async def test_details_become_attributes(server: Scripted, client: Client) -> None:
    faults = error_details_pb2.BadRequest(
        field_violations=[error_details_pb2.BadRequest.FieldViolation(field="address", description="is required")]
    )
    refusal = Refusal(StatusCode.INVALID_ARGUMENT, "REQUEST_INVALID", "address: is required", details=(faults,))
    server.answers("ScheduleNotification", refusal)
    with pytest.raises(errors.RequestInvalid) as raised:
        await client.schedule(REQUEST)
    assert raised.value.violations == (Violation("address", "is required"),)
    assert not raised.value.temporary

    reused = Refusal(StatusCode.ALREADY_EXISTS, "IDEMPOTENCY_KEY_REUSED", metadata={"notification_id": "an id"})
    server.answers("ScheduleNotification", reused)
    with pytest.raises(errors.IdempotencyKeyReused) as other:
        await client.schedule(REQUEST)
    assert other.value.metadata == {"notification_id": "an id"}


async def test_a_reason_that_is_not_known_keeps_its_name(server: Scripted, client: Client) -> None:
    server.answers("GetQueueStats", Refusal(StatusCode.FAILED_PRECONDITION, "OF_NEXT_YEAR"))
    with pytest.raises(NotifyQueueError) as raised:
        await client.stats()
    assert (type(raised.value), raised.value.reason) == (NotifyQueueError, "OF_NEXT_YEAR")


async def test_another_domain_is_no_reason_of_ours(server: Scripted, client: Client) -> None:
    server.answers("GetQueueStats", Refusal(StatusCode.PERMISSION_DENIED, "ROLE_MISSING", domain="proxy.example.com"))
    with pytest.raises(NotifyQueueError) as raised:
        await client.stats()
    assert (type(raised.value), raised.value.reason) == (NotifyQueueError, "")


def page(*ids: str, token: str = "") -> scheduler_pb2.ListNotificationsResponse:
    answer = scheduler_pb2.ListNotificationsResponse(next_page_token=token)
    for id_ in ids:
        answer.notifications.add(notification_id=id_)
    return answer


async def test_a_list_goes_through_short_and_empty_pages(server: Scripted, client: Client) -> None:
    server.answers("ListNotifications", page("a", "b", token="1"), page(token="2"), page("c"))
    assert [found.notification_id async for found in client.list(page_size=2)] == ["a", "b", "c"]
    assert [asked.page_token for asked in server.asked["ListNotifications"]] == ["", "1", "2"]


async def test_a_page_is_asked_for_when_it_is_wanted(server: Scripted, client: Client) -> None:
    server.answers("ListNotifications", page("a", token="1"), page("b"))
    async with aclosing(client.list()) as found:
        assert (await anext(found)).notification_id == "a"
    assert len(server.asked["ListNotifications"]) == 1


@pytest.mark.parametrize("key", [{}, {"notification_id": "a", "idempotency_key": "b"}])
async def test_a_notification_has_one_name(client: Client, key: dict[str, str]) -> None:
    for call in (client.get, client.cancel, client.reschedule, client.redrive):
        with pytest.raises(TypeError, match="exactly one"):
            await call(**key)  # type: ignore[arg-type]


async def test_a_time_without_a_zone_is_refused(client: Client) -> None:
    with pytest.raises(ValueError, match="zone"):
        await client.reschedule(idempotency_key="a", due=dt.datetime(2027, 3, 1))  # noqa: DTZ001


async def test_what_died_is_sent_back_by_its_name_or_by_a_filter(server: Scripted, client: Client) -> None:
    done = scheduler_pb2.RedriveNotificationResponse(notification=Notification(redrive_count=1))
    server.answers("RedriveNotification", done)
    server.answers("BulkRedriveNotifications", scheduler_pb2.BulkRedriveNotificationsResponse(redriven=3))
    assert (await client.redrive(idempotency_key="a", reason="why")).redrive_count == 1
    filter_ = NotificationFilter(reference="order")
    span = timedelta(minutes=10)
    answer = await client.bulk_redrive(filter_, limit=3, reason="why", spread_over=span, page_token="a")
    assert answer.redriven == 3
    assert server.asked["RedriveNotification"] == [
        scheduler_pb2.RedriveNotificationRequest(idempotency_key="a", reason="why")
    ]
    assert server.asked["BulkRedriveNotifications"] == [
        scheduler_pb2.BulkRedriveNotificationsRequest(
            filter=filter_, limit=3, reason="why", spread_over=Duration(seconds=600), page_token="a"
        )
    ]


async def test_a_drain_may_take_longer_than_other_calls(server: Scripted) -> None:
    """The deadline of a drain is its own: with the client's it would end before it has an answer."""
    server.answers("DrainWorker", worker_pb2.DrainWorkerResponse())
    server.answers("ResumeWorker", Hang())
    server.answers("DrainDispatcher", dispatcher_pb2.DrainDispatcherResponse())
    short = timedelta(microseconds=1)
    async with connect_worker(server.address, timeout=short) as worker:
        assert (await worker.drain(timedelta(minutes=1))).phase == process_pb2.PROCESS_PHASE_UNSPECIFIED
        with pytest.raises(errors.DeadlineExceeded):
            await worker.resume()
    async with connect_dispatcher(server.address, timeout=short) as dispatcher:
        await dispatcher.drain()
    (asked,) = server.asked["DrainWorker"]
    assert asked.timeout.ToTimedelta() == timedelta(minutes=1)
    (other,) = server.asked["DrainDispatcher"]
    assert not other.HasField("timeout")


async def test_tls_by_a_file_of_certificates(tmp_path: Path) -> None:
    authority = Authority()
    pair = authority.issue("a scheduler")
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    with serving(grpc.ssl_server_credentials([(pair.key, pair.certificate)])) as server:
        server.answers("GetQueueStats", scheduler_pb2.GetQueueStatsResponse())
        async with connect(server.address, tls=tmp_path / "ca.pem") as client:
            await client.stats()
        for wrong in (True, False):
            async with connect(server.address, tls=wrong, timeout=timedelta(seconds=1)) as client:
                with pytest.raises(NotifyQueueError):
                    await client.stats()
    assert len(server.metadata) == 1
