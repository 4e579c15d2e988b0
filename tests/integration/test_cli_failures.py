"""The command line when things go wrong: one line each, an exit code by kind, and never a traceback."""

import asyncio
import contextlib
import json
import os
import pty
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2
from grpc import StatusCode

from notifyqueue import Channel
from notifyqueue.cli import exits, tracing
from notifyqueue.v1 import dispatcher_pb2, errors_pb2, notification_pb2, process_pb2, scheduler_pb2, worker_pb2
from tests.command_line import ROOT, WITHIN, CommandLine, finished, started
from tests.scripted_server import Hang, Refusal, Scripted, serving
from tests.waiting import eventually

KEY = "nq_01jabc_a-secret-that-nobody-may-see"
RetryInfo = error_details_pb2.RetryInfo


@pytest.fixture
def server() -> Iterator[Scripted]:
    with serving() as scripted:
        yield scripted


@pytest.fixture
def cli(server: Scripted, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    command_line = CommandLine(capsys, monkeypatch)
    command_line.calls(server.address)
    return command_line


@pytest.mark.parametrize(
    ("refusal", "code", "said"),
    [
        (Refusal(StatusCode.INVALID_ARGUMENT, "REQUEST_INVALID", "address: is required"), 64, "correct what is named"),
        (Refusal(StatusCode.NOT_FOUND, "RESOURCE_NOT_FOUND", "no such notification"), 66, "check the key, id or name"),
        (Refusal(StatusCode.INTERNAL, "INTERNAL", "internal error"), 70, "with the request id"),
        (Refusal(StatusCode.UNKNOWN, "", "Unexpected\n\x1b[31mthing"), 70, "tell those who run the server"),
        (Refusal(StatusCode.FAILED_PRECONDITION, "STATUS_CONFLICT", "the notification is SENT"), 73, "--timeline"),
        (Refusal(StatusCode.RESOURCE_EXHAUSTED, "SERVER_OVERLOADED", "too much"), 75, "in a moment"),
        (Refusal(StatusCode.UNIMPLEMENTED, "METHOD_UNKNOWN", "no such method"), 76, "update it"),
        (Refusal(StatusCode.UNAUTHENTICATED, "CREDENTIAL_INVALID", "no key"), 77, "NOTIFYQUEUE_API_KEY"),
        (Refusal(StatusCode.PERMISSION_DENIED, "ROLE_MISSING", "the role"), 77, "OPERATOR"),
    ],
)
def test_a_refusal_is_one_line_with_what_to_do_next(
    cli: CommandLine, server: Scripted, refusal: Refusal, code: int, said: str
) -> None:
    server.answers("GetNotification", refusal)
    refused = cli("get", "k")
    assert (refused.code, refused.out, refused.err.count("\n")) == (code, "", 1)
    assert refused.err.startswith("notifyqueue: ")
    assert said in refused.err
    assert refused.err[:-1].isprintable()
    as_json = cli("get", "k", "--json")
    record = json.loads(as_json.err)
    assert (as_json.code, as_json.out, record["exit_code"]) == (code, "", code)
    assert (record["error"]["reason"], record["error"]["code"]) == (refusal.reason, refusal.code.name)


def test_nobody_there(cli: CommandLine, server: Scripted) -> None:
    with serving() as gone:
        address = gone.address
    refused = cli("stats", "--address", address)
    assert (refused.code, refused.err.count("\n")) == (69, 1)
    assert refused.err.startswith(f"notifyqueue: {address} does not answer (UNAVAILABLE); check the address")
    assert "called in plain text: --tls" in refused.err
    by_tls = cli("stats", "--address", address, "--tls")
    assert (by_tls.code, by_tls.err.count("\n")) == (69, 1)
    assert "called by TLS: --plaintext" in by_tls.err
    drained = cli("drain", "worker", NOTIFYQUEUE_WORKER_ADDRESS=address)
    assert drained.err.startswith(f"notifyqueue: {address} does not answer")
    server.answers("GetQueueStats", Hang())
    assert cli("stats", "--timeout", "0.2s").code == 75


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "sand",
        "get",
        "get k --id i",
        "get k --api-key secret",
        "get k --timeout soon",
        "get k --address localhost",
        "get k --address 50051",
        "get k --address localhost:",
        "get k --address localhost:70000",
        "get k --address http://localhost:50051",
        "get k --address ::1:50051",
        "get k --plaintext --ca-file {folder}/empty",
        "get k --ca-file {folder}/missing",
        "get k --api-key-file {folder}/missing",
        "get k --api-key-file {folder}/empty",
        "get k --api-key-file {folder}/lines",
        "send --to a --sms hi",
        "send --key k --sms hi",
        "send --key k --to a --subscriber b --sms hi",
        "send --key k --to a",
        "send --key k --to a --sms hi --subject s",
        "send --key k --to a --sms @{folder}/missing",
        "send --key k --to a --sms @{folder}/latin",
        "send --key k --to a --sms hi --label x",
        "send --key k --to a --sms hi --priority urgent",
        "send --key k --to a --sms hi --at noon",
        "send --key k --to a --sms hi --at 2027-03-01T09:00 --in 1h",
        "send --key k --to a --sms hi --in 99999999999d",
        "reschedule k",
        "list --status gone",
        "list --limit -1",
        "lanes pause",
        "lanes pause SMS",
        "lanes pause FAX --reason r",
        "lanes stop SMS",
        "drain scheduler",
        "batch {folder}/missing.csv",
        "batch {folder}/empty",
        "batch {folder}",
    ],
)
def test_what_is_not_understood_is_one_line_and_calls_nobody(
    cli: CommandLine, server: Scripted, tmp_path: Path, arguments: str
) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "latin").write_bytes(b"\xe4")
    (tmp_path / "lines").write_text(f"{KEY}\n{KEY}\n")
    refused = cli(*shlex.split(arguments.format(folder=tmp_path)))
    assert (refused.code, refused.out, refused.err.count("\n")) == (exits.USAGE, "", 1)
    assert refused.err.startswith("notifyqueue: ")
    assert "a-secret" not in refused.err
    assert not server.metadata


def test_the_key_comes_from_the_environment_or_a_file(cli: CommandLine, server: Scripted, tmp_path: Path) -> None:
    server.answers("GetQueueStats", Refusal(StatusCode.UNAUTHENTICATED, "CREDENTIAL_INVALID"))
    (tmp_path / "key").write_text(f"{KEY}\n")
    told = [
        cli("stats", NOTIFYQUEUE_API_KEY=KEY),
        cli("stats", "--api-key-file", str(tmp_path / "key"), NOTIFYQUEUE_API_KEY="nq_other"),
        cli("stats", NOTIFYQUEUE_API_KEY_FILE=str(tmp_path / "key")),
        cli("stats"),
    ]
    assert [found.get("authorization") for found in server.metadata] == [*[f"Bearer {KEY}"] * 3, None]
    assert KEY not in "".join(each.out + each.err for each in told)
    assert {each.code for each in told} == {77}


def test_texts_come_from_files_and_stdin(cli: CommandLine, server: Scripted, tmp_path: Path) -> None:
    server.answers("ScheduleNotification", scheduler_pb2.ScheduleNotificationResponse())
    (tmp_path / "mail.html").write_text("<p>ä</p>")
    mail = ("send", "--key", "k", "--to", "a", "--subject", "@@home", "--text", "@-")
    assert cli(*mail, "--html", f"@{tmp_path}/mail.html", given=b"from stdin").code == 0
    assert cli("send", "--key", "k", "--to", "a", "--title", "t", "--body", "b", "--data", "x=1").code == 0
    first, second = server.asked["ScheduleNotification"]
    expected = notification_pb2.EmailContent(subject="@home", text="from stdin", html="<p>ä</p>")
    assert first.email == expected
    assert second.push == notification_pb2.PushContent(title="t", body="b", data={"x": "1"})


def accepted(
    request: scheduler_pb2.BatchScheduleNotificationsRequest,
) -> scheduler_pb2.BatchScheduleNotificationsResponse:
    answer = scheduler_pb2.BatchScheduleNotificationsResponse()
    for _ in request.requests:
        answer.results.add(accepted=scheduler_pb2.BatchAccepted(notification_id="id"))
    return answer


def lines(folder: Path, count: int) -> str:
    file = folder / "mails.jsonl"
    file.write_text("".join(f'{{"idempotency_key": "k{number}"}}\n' for number in range(count)))
    return str(file)


def test_a_batch_goes_on_after_a_while_and_gives_up_at_last(cli: CommandLine, server: Scripted, tmp_path: Path) -> None:
    busy = scheduler_pb2.BatchRefused(
        code=8, reason=errors_pb2.ERROR_REASON_SERVER_OVERLOADED, retry_delay=Duration(nanos=1)
    )
    some = scheduler_pb2.BatchScheduleNotificationsResponse(
        results=[scheduler_pb2.BatchResult(refused=busy), *accepted_results(2)]
    )
    server.answers("BatchScheduleNotifications", some, accepted)
    done = cli("batch", lines(tmp_path, 3), "--json")
    assert (done.code, done.err) == (0, "")
    assert done.records[-1]["summary"]["accepted"] == 3
    assert [len(asked.requests) for asked in server.asked["BatchScheduleNotifications"]] == [3, 1]

    server.answers("BatchScheduleNotifications", Refusal(StatusCode.RESOURCE_EXHAUSTED, "SERVER_OVERLOADED",
                   details=(RetryInfo(retry_delay=Duration(nanos=1)),)))  # fmt: skip
    given_up = cli("batch", lines(tmp_path, 2), "--patience", "0s")
    assert given_up.code == 75
    assert given_up.out.startswith("accepted 0, not known 2 in ")
    assert "run the same command again" in given_up.err


def accepted_results(count: int) -> list[scheduler_pb2.BatchResult]:
    return [scheduler_pb2.BatchResult(accepted=scheduler_pb2.BatchAccepted(notification_id="id"))] * count


def test_a_batch_ends_at_what_concerns_every_line(cli: CommandLine, server: Scripted, tmp_path: Path) -> None:
    server.answers("BatchScheduleNotifications", Refusal(StatusCode.PERMISSION_DENIED, "ROLE_MISSING"))
    refused = cli("batch", lines(tmp_path, 5_000))
    assert (refused.code, refused.err.count("\n")) == (77, 1)
    header = tmp_path / "mails.csv"
    header.write_text("key,to\nk,a\n")
    other = cli("batch", str(header))
    assert (other.code, other.err.count("\n")) == (64, 1)
    assert "idempotency_key" in other.err


def test_a_drain_says_whether_it_is_done(cli: CommandLine, server: Scripted) -> None:
    worker = worker_pb2.WorkerStatus(worker_id="w", phase=process_pb2.PROCESS_PHASE_DRAINED)
    busy = dispatcher_pb2.DispatcherStatus(dispatcher_id="d", phase=process_pb2.PROCESS_PHASE_DRAINING, in_flight=1_200)
    server.answers("DrainWorker", worker_pb2.DrainWorkerResponse(worker=worker))
    server.answers("DrainDispatcher", dispatcher_pb2.DrainDispatcherResponse(dispatcher=busy))
    server.answers("ResumeWorker", worker_pb2.ResumeWorkerResponse(worker=worker))
    done = cli("drain", "worker", "--timeout", "1m", NOTIFYQUEUE_WORKER_ADDRESS=server.address)
    assert (done.code, done.out) == (0, "worker w: DRAINED, 0 under way\n")
    assert server.asked["DrainWorker"][0].timeout.seconds == 60
    still = cli("drain", "dispatcher", NOTIFYQUEUE_DISPATCHER_ADDRESS=server.address)
    assert (still.code, still.out) == (75, "dispatcher d: DRAINING, 1,200 under way\n")
    assert "ask again" in still.err
    assert cli("resume", "worker", "--address", server.address, "--json").record["worker_id"] == "w"


class Traced(grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        metadata = grpc.aio.Metadata(*(client_call_details.metadata or ()), ("traceparent", "of this command"))
        return await continuation(client_call_details._replace(metadata=metadata), request)


def test_whomever_a_command_calls_the_call_is_traced(
    cli: CommandLine, server: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "interceptors", lambda: [Traced()])
    server.answers("GetQueueStats", scheduler_pb2.GetQueueStatsResponse())
    for steer in ("Drain", "Resume"):
        server.answers(f"{steer}Worker", getattr(worker_pb2, f"{steer}WorkerResponse")())
        server.answers(f"{steer}Dispatcher", getattr(dispatcher_pb2, f"{steer}DispatcherResponse")())
    commands = [("lanes",), *((does, whom) for does in ("drain", "resume") for whom in ("worker", "dispatcher"))]
    for command in commands:
        cli(*command, "--address", server.address)
    assert [called.get("traceparent") for called in server.metadata] == ["of this command"] * len(commands)


def look(number: int) -> scheduler_pb2.GetQueueStatsResponse:
    answer = scheduler_pb2.GetQueueStatsResponse()
    lane = answer.lanes.add(channel=Channel.CHANNEL_EMAIL)
    lane.due.count, lane.due.at_least = 10_000, True
    lane.lane.open_breaker.cause = "smtp:421"
    worker = answer.workers.add(worker_id="worker-one", phase=process_pb2.PROCESS_PHASE_RUNNING)
    worker.heartbeat_time.seconds = 1_000 + number
    worker.lanes.add(channel=Channel.CHANNEL_EMAIL, concurrency=64, in_flight=7, sent=1_500 * number, unsent=number)
    return answer


async def test_a_watch_draws_again_and_again_with_rates_until_it_is_interrupted(server: Scripted) -> None:
    away = Refusal(StatusCode.RESOURCE_EXHAUSTED, "SERVER_OVERLOADED", details=(RetryInfo(retry_delay=Duration()),))
    server.answers("GetQueueStats", look(1), away, look(2))
    terminal, end = pty.openpty()
    drawn = bytearray()

    def draw() -> None:
        with contextlib.suppress(OSError):  # the other end has gone
            drawn.extend(os.read(terminal, 65_536))

    asyncio.get_running_loop().add_reader(terminal, draw)
    try:
        arguments = ("stats", "--watch", "--interval", "0.05s", "--address", server.address)
        async with started(*arguments, stdout=end, settings={"TERM": "xterm", "COLUMNS": "160"}) as process:
            os.close(end)
            await eventually(lambda: drawn.count(b"worker-o") >= 3 and b"1,500.0" in drawn)
            process.send_signal(signal.SIGINT)
            ended = await finished(process)
    finally:
        asyncio.get_running_loop().remove_reader(terminal)
        os.close(terminal)
    assert (ended.code, ended.err) == (130, "notifyqueue: interrupted\n")
    for said in (b"10,000+", b"7/64", b"smtp:421", b"no answer for now"):
        assert said in drawn


async def test_a_watch_for_programs_is_a_line_a_look(server: Scripted) -> None:
    server.answers("GetQueueStats", look(1), look(2))
    async with started("stats", "--watch", "--json", "--interval", "0.05s", "--address", server.address) as process:
        assert process.stdout
        seen = [json.loads(await process.stdout.readline())["workers"][0]["lanes"][0]["sent"] for _ in range(3)]
        process.send_signal(signal.SIGINT)
        assert (await finished(process)).code == 130
    assert seen == ["1500", "3000", "3000"]


async def test_a_batch_that_is_interrupted_says_so_and_how_far_it_came(server: Scripted, tmp_path: Path) -> None:
    server.answers("BatchScheduleNotifications", accepted, Hang())
    async with started("batch", lines(tmp_path, 3_000), "--address", server.address) as process:
        await eventually(lambda: len(server.asked["BatchScheduleNotifications"]) >= 5)
        process.send_signal(signal.SIGINT)
        ended = await finished(process)
    assert ended.code == 130
    assert ended.out.startswith("accepted 500 in ")
    assert ended.err == "notifyqueue: interrupted\n"


async def test_tls_to_what_speaks_plain_text_is_one_line(server: Scripted) -> None:
    async with started("stats", "--tls", "--timeout", "1s", "--address", server.address) as process:
        ended = await finished(process)
    assert ended.code in (exits.UNAVAILABLE, exits.TRY_AGAIN)
    assert (ended.out, ended.err.count("\n")) == ("", 1)
    assert ended.err.startswith("notifyqueue: ")
    assert "--plaintext" in ended.err


async def test_a_batch_that_nobody_takes_says_so_at_once_and_at_last(tmp_path: Path) -> None:
    with serving() as gone:
        address = gone.address
    async with started("batch", lines(tmp_path, 3), "--address", address) as process:
        assert process.stderr
        async with asyncio.timeout(WITHIN):
            said = (await process.stderr.readline()).decode()
        assert said.startswith(f"{address} does not answer (UNAVAILABLE); trying for 4m ")
        process.send_signal(signal.SIGINT)
        ended = await finished(process)
    assert (ended.code, ended.err) == (130, "notifyqueue: interrupted\n")
    assert ended.out.startswith("accepted 0 in ")
    assert f"; {address} does not answer" in ended.out


async def test_whoever_reads_no_further_gets_no_traceback(server: Scripted) -> None:
    page = scheduler_pb2.ListNotificationsResponse(next_page_token="more")
    for _ in range(1_000):
        page.notifications.add(notification_id="x" * 100)
    server.answers("ListNotifications", page)
    command = f"{shlex.quote(sys.executable)} -m notifyqueue list --limit 0 --address {server.address} | head -n 1"
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"), cwd=ROOT, stdout=-1, stderr=-1
    )
    ended = await finished(process)
    assert (ended.code, ended.err, ended.out.count("\n")) == (0, "", 1)
