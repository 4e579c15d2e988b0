"""Watching, as the client and the command line do: over the ends of streams, until the notification has ended."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from datetime import timedelta

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2
from grpc import StatusCode

from notifyqueue import Client, NotifyQueueError, connect, errors
from notifyqueue.v1 import notification_pb2, scheduler_pb2
from tests.command_line import CommandLine
from tests.scripted_server import Answer, Hang, Refusal, Scripted, serving

SOON = error_details_pb2.RetryInfo(retry_delay=Duration(nanos=1_000_000))
DRAINING = Refusal(StatusCode.UNAVAILABLE, "SERVER_DRAINING", details=(SOON,))
TOO_LONG = Refusal(StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED")
Status = notification_pb2.Notification.Status


@pytest.fixture
def server() -> Iterator[Scripted]:
    with serving() as scripted:
        yield scripted


@pytest.fixture
async def client(server: Scripted) -> AsyncIterator[Client]:
    async with connect(server.address) as client:
        yield client


def state(revision: int, status: str = "PENDING") -> scheduler_pb2.WatchNotificationResponse:
    ended = status not in ("PENDING", "PROCESSING")
    return scheduler_pb2.WatchNotificationResponse(
        notification=notification_pb2.Notification(
            notification_id="an id",
            status=Status.Value(f"STATUS_{status}"),
            revision=revision,
            attempt_count=revision // 2,
            max_attempts=5,
            finish_time=Timestamp(seconds=1) if ended else None,
        )
    )


async def revisions(
    client: Client, *, within: timedelta | None = None, patience: timedelta = timedelta(minutes=1)
) -> list[int]:
    found = client.watch(idempotency_key="order-17", within=within, patience=patience)
    return [state.revision async for state in found]


@pytest.mark.parametrize("end", [(DRAINING,), (Refusal(StatusCode.UNAVAILABLE),), (TOO_LONG,), (DRAINING, DRAINING)])
async def test_it_goes_on_after_a_stream_that_ended_early_and_tells_nothing_twice(
    server: Scripted, client: Client, end: tuple[Answer, ...]
) -> None:
    server.answers("WatchNotification", state(1), state(2, "PROCESSING"), *end, state(2), state(5, "SENT"))
    assert await revisions(client) == [1, 2, 5]
    asked = server.asked["WatchNotification"]
    assert len(asked) == 1 + len(end)
    assert {request.idempotency_key for request in asked} == {"order-17"}


async def test_it_ends_with_the_first_state_that_has_an_end(server: Scripted, client: Client) -> None:
    server.answers("WatchNotification", state(3, "EXPIRED"), Hang())
    assert await revisions(client) == [3]


@pytest.mark.parametrize(
    "refusal",
    [Refusal(StatusCode.NOT_FOUND, "RESOURCE_NOT_FOUND"), Refusal(StatusCode.PERMISSION_DENIED, "ROLE_MISSING")],
)
async def test_what_does_not_pass_is_raised(server: Scripted, client: Client, refusal: Refusal) -> None:
    for before in ((), (state(1),)):
        server.answers("WatchNotification", *before, refusal)
        with pytest.raises(NotifyQueueError) as raised:
            await revisions(client)
        assert raised.value.reason == refusal.reason


async def test_a_call_that_nobody_answers_is_raised(client: Client, server: Scripted) -> None:
    server.answers("WatchNotification", Refusal(StatusCode.RESOURCE_EXHAUSTED, "SERVER_OVERLOADED", details=(SOON,)))
    with pytest.raises(errors.ServerOverloaded):
        await revisions(client)


async def test_patience_has_an_end(server: Scripted, client: Client) -> None:
    server.answers("WatchNotification", state(1), *[DRAINING] * 100)
    with pytest.raises(errors.ServerDraining):
        await revisions(client, patience=timedelta(milliseconds=300))
    assert 2 <= len(server.asked["WatchNotification"]) < 50


async def test_what_does_not_end_in_time_is_raised(server: Scripted, client: Client) -> None:
    server.answers("WatchNotification", state(1), Hang())
    with pytest.raises(errors.DeadlineExceeded):
        await revisions(client, within=timedelta(milliseconds=300))
    assert len(server.asked["WatchNotification"]) == 1


async def test_whoever_has_seen_enough_leaves(server: Scripted, client: Client) -> None:
    server.answers("WatchNotification", state(1), Hang())
    async with aclosing(client.watch(notification_id="a")) as found:
        assert (await anext(found)).revision == 1


def test_a_watch_needs_exactly_one_name(server: Scripted) -> None:
    with pytest.raises(TypeError, match="exactly one"):
        Client.watch(object.__new__(Client), notification_id="a", idempotency_key="b")


@pytest.fixture
def cli(server: Scripted, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    command_line = CommandLine(capsys, monkeypatch)
    command_line.calls(server.address)
    return command_line


@pytest.mark.parametrize(
    ("status", "code"),
    [("SENT", 0), ("FAILED", 10), ("DEAD_LETTERED", 11), ("CANCELLED", 12), ("EXPIRED", 13), ("SUPPRESSED", 14)],
)
def test_the_command_prints_each_change_and_its_exit_code_says_how_it_ended(
    cli: CommandLine, server: Scripted, status: str, code: int
) -> None:
    server.answers("WatchNotification", state(1), state(2, "PROCESSING"), DRAINING, state(3, status))
    shown = cli("watch", "order-17")
    assert (shown.code, shown.err) == (code, "")
    assert shown.out.splitlines() == ["PENDING", "PROCESSING, attempt 1 of 5", f"{status}, attempt 1 of 5"]
    server.answers("WatchNotification", state(1), state(3, status))
    told = cli("watch", "--id", "an id", "--json")
    assert told.code == code
    assert [record["status"] for record in told.records] == ["STATUS_PENDING", f"STATUS_{status}"]


def test_the_command_waits_for_as_long_as_it_is_told(cli: CommandLine, server: Scripted) -> None:
    server.answers("WatchNotification", state(1), Hang())
    late = cli("watch", "order-17", "--timeout", "0.3s", "--json")
    assert late.code == 75
    assert json.loads(late.err)["error"]["reason"] == "DEADLINE_EXCEEDED"
    server.answers("WatchNotification", Refusal(StatusCode.NOT_FOUND, "RESOURCE_NOT_FOUND", "no such notification"))
    assert cli("watch", "nothing").code == 66
