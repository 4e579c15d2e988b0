"""`notifyqueue redrive` by a filter: as many calls as it takes, and one line about all of them."""

from collections.abc import Iterator

import pytest
from google.protobuf.duration_pb2 import Duration
from grpc import StatusCode

from notifyqueue.v1.scheduler_pb2 import BoundedCount, BulkRedriveNotificationsResponse
from tests.command_line import CommandLine
from tests.scripted_server import Refusal, Scripted, serving

METHOD = "BulkRedriveNotifications"


@pytest.fixture
def server() -> Iterator[Scripted]:
    with serving() as scripted:
        yield scripted


@pytest.fixture
def cli(server: Scripted, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    command_line = CommandLine(capsys, monkeypatch)
    command_line.calls(server.address)
    return command_line


def answer(redriven: int, left: int, passed_over: int, token: str) -> BulkRedriveNotificationsResponse:
    rest = BoundedCount(count=left, at_least=bool(token) and not left)
    return BulkRedriveNotificationsResponse(
        redriven=redriven, remaining=rest, passed_over=passed_over, next_page_token=token
    )


def asked(server: Scripted) -> list[tuple[int, str]]:
    """The limit of each call and where it began."""
    return [(request.limit, request.page_token) for request in server.asked[METHOD]]


def test_all_takes_as_many_calls_as_it_needs_each_over_the_whole_span(cli: CommandLine, server: Scripted) -> None:
    server.answers(METHOD, answer(1_000, 300, 1, "a"), answer(0, 0, 2, "b"), answer(300, 0, 0, ""))
    done = cli("redrive", "--channel", "email", "--limit", "0", "--spread-over", "10m", "--reason", "it is back")
    assert (done.code, done.out) == (0, "redriven 1,300, 0 left, 3 passed over\n")
    assert asked(server) == [(1_000, ""), (1_000, "a"), (1_000, "b")]
    for request in server.asked[METHOD]:
        assert (request.spread_over, request.reason) == (Duration(seconds=600), "it is back")


@pytest.mark.parametrize(("limit", "first", "second"), [((), 100, 40), (("--limit", "1040"), 1_000, 980)])
def test_a_limit_counts_over_all_calls(
    cli: CommandLine, server: Scripted, limit: tuple[str, ...], first: int, second: int
) -> None:
    server.answers(METHOD, answer(60, 0, 0, "a"), answer(second, 7, 0, "b"))
    done = cli("redrive", "--channel", "email", *limit)
    assert (done.code, done.out) == (0, f"redriven {60 + second:,}, 7 left\n")
    assert asked(server) == [(first, ""), (second, "a")]


def test_where_a_later_call_fails_what_was_done_is_told(cli: CommandLine, server: Scripted) -> None:
    server.answers(METHOD, answer(1_000, 300, 0, "a"), Refusal(StatusCode.RESOURCE_EXHAUSTED, "SERVER_OVERLOADED"))
    done = cli("redrive", "--channel", "email", "--limit", "0")
    assert (done.code, done.out, done.err.count("\n")) == (75, "redriven 1,000, 300 left\n", 1)


def test_where_the_first_call_fails_nothing_is_told_but_why(cli: CommandLine, server: Scripted) -> None:
    server.answers(METHOD, Refusal(StatusCode.RESOURCE_EXHAUSTED, "SERVER_OVERLOADED"))
    done = cli("redrive", "--channel", "email")
    assert (done.code, done.out, done.err.count("\n")) == (75, "", 1)
