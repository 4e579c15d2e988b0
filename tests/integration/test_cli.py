"""The command line against the real scheduler, which is a process of its own: what it prints, and how it ends."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from tests.command_line import CommandLine
from tests.conftest import login
from tests.processes import environment, ready, running

MAIL = ("--to", "you@example.com", "--subject", "Your order", "--text", "It left.")


@pytest.fixture
async def cli(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[CommandLine]:
    command_line = CommandLine(capsys, monkeypatch)
    async with running("services.scheduler", tmp_path, environment(login(database_url, "scheduler"))) as process:
        address = f"127.0.0.1:{await process.port()}"
        await ready(address, "notifyqueue.v1.Scheduler")
        command_line.calls(address)
        yield command_line


def test_the_life_of_a_notification(cli: CommandLine) -> None:
    sent = cli(
        *("send", "--key", "order-17", *MAIL, "--in", "1h", "--expires-in", "2h", "--priority", "high", "--json"),
        *("--reference", "17", "--label", "order=17", "--label", "shop=a=b", "--category", "orders", "--at-most-once"),
    )
    assert (sent.code, sent.err) == (0, "")
    found = sent.record["notification"]
    assert sent.record["replayed"] is False
    assert found["address"] == "you@example.com"
    assert (found["priority"], found["status"]) == ("PRIORITY_HIGH", "STATUS_PENDING")
    assert found["labels"] == {"order": "17", "shop": "a=b"}
    assert (found["reference"], found["category"], found["at_most_once"]) == ("17", "orders", True)

    moved = cli("reschedule", "order-17", "--in", "2h", "--priority", "low", "--reason", "rain")
    assert (moved.code, moved.err) == (0, "")
    assert moved.out.startswith(f"rescheduled {found['notification_id']}: LOW, due ")

    cancelled = cli("cancel", "--id", found["notification_id"], "--reason", "lost")
    assert (cancelled.code, cancelled.out) == (0, f"cancelled {found['notification_id']}\n")

    shown = cli("get", "order-17", "--timeline")
    assert shown.code == 0
    assert ["status", "CANCELLED"] in [line.split() for line in shown.out.splitlines()]
    assert "RESCHEDULED" in shown.out
    assert "lost" in shown.out

    listed = cli("list", "--status", "cancelled", "--reference", "17", "--json")
    assert [each["idempotency_key"] for each in listed.records] == ["order-17"]
    none = cli("list", "--status", "sent")
    assert (none.code, none.out, none.err) == (0, "", "none\n")


DIES = (
    "UPDATE notifyqueue.notifications SET status = 'DEAD_LETTERED', failure_reason = 'ATTEMPTS_EXHAUSTED', "
    "finished_at = now() WHERE idempotency_key = ANY ($1)"
)


def test_what_died_is_sent_back_alone_or_with_others(cli: CommandLine, database_url: str) -> None:
    keys = [f"order-{number}" for number in range(4)]
    ids = [cli("send", "--key", key, *MAIL, "--json").record["notification"]["notification_id"] for key in keys]
    early = cli("redrive", "order-0")
    assert (early.code, "STATUS_CONFLICT" in early.err) == (73, True)
    asyncio.run(execute(database_url, DIES, keys))

    alone = cli("redrive", "order-0", "--reason", "it is back")
    assert (alone.code, alone.out, alone.err) == (0, f"redriven {ids[0]}\n", "")
    told = cli("get", "--id", ids[0], "--timeline").out
    assert "REDRIVEN, anonymous, it is back" in told

    which = ("--status", "dead-lettered", "--channel", "email", "--to", "you@example.com", "--since", "2020-01-01")
    assert cli("redrive", *which, "--dry-run", "--limit", "2").out == "would redrive 2, 1 left\n"
    some = cli("redrive", *which, "--limit", "2", "--spread-over", "10m", "--json")
    assert (some.code, some.record["redriven"], some.record["remaining"]["count"]) == (0, 2, "1")
    asyncio.run(execute(database_url, "DELETE FROM notifyqueue.notification_contents WHERE $1::text[] <> '{}'", keys))
    assert cli("redrive", "--channel", "email").out == "redriven 0, 0 left, 1 passed over\n"
    gone = cli("redrive", "order-3")
    assert (gone.code, "NO_LONGER_SENDABLE" in gone.err, "under another key" in gone.err) == (73, True, True)


async def execute(url: str, statement: str, keys: list[str]) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement, keys)
    finally:
        await connection.close()


@pytest.mark.parametrize(
    "arguments",
    [(), ("order-1", "--channel", "email"), ("--id", "x", "--dry-run"), ("order-1", "--spread-over", "10m")],
)
def test_a_redrive_is_of_one_or_by_a_filter(cli: CommandLine, arguments: tuple[str, ...]) -> None:
    refused = cli("redrive", *arguments)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)


def test_a_repetition_says_so_and_another_request_is_a_conflict(cli: CommandLine) -> None:
    first = cli("send", "--key", "k", *MAIL)
    again = cli("send", "--key", "k", *MAIL)
    other = cli("send", "--key", "k", *MAIL, "--priority", "low")
    assert first.out.startswith("accepted ")
    assert again.out.startswith("already accepted ")
    assert (other.code, other.out, other.err.count("\n")) == (73, "", 1)
    assert other.err.startswith(
        "notifyqueue: idempotency_key: was used for a different request (IDEMPOTENCY_KEY_REUSED"
    )
    assert "`notifyqueue get`" in other.err


def test_a_refusal_names_fields_and_no_values(cli: CommandLine) -> None:
    refused = cli("send", "--key", "k", "--to", "secret at nowhere", "--subject", "a\nb", "--json")
    assert refused.code == 64
    error = json.loads(refused.err)
    assert error["exit_code"] == 64
    assert error["error"]["reason"] == "REQUEST_INVALID"
    assert error["error"]["request_id"]
    assert {each["field"] for each in error["error"]["violations"]} >= {"address", "email.subject"}
    assert "secret" not in refused.err
    shown = cli("send", "--key", "k", "--to", "secret at nowhere", "--subject", "a\nb")
    assert shown.err.count("\n") == 1
    assert "email.subject: " in shown.err

    missing = cli("get", "nothing")
    assert (missing.code, missing.err.count("\n")) == (66, 1)
    assert missing.err.startswith("notifyqueue: no such notification (RESOURCE_NOT_FOUND, request ")
    assert "--id" not in missing.err
    for command in (("get",), ("cancel",), ("reschedule", "--in", "1h")):
        as_key = cli(command[0], "019343b2-0000-7000-8000-0123456789ab", *command[1:])
        assert (as_key.code, as_key.err.count("\n")) == (66, 1)
        assert "an id goes with --id" in as_key.err


def jsonl(folder: Path, keys: list[str]) -> Path:
    file = folder / "mails.jsonl"
    lines = [
        json.dumps({"idempotency_key": key, "address": f"{key}@example.com", "email": {"subject": "s", "text": "t"}})
        for key in keys
    ]
    file.write_text("\n".join(lines) + "\n")
    return file


def test_a_batch_costs_no_line_for_another_and_is_run_again(cli: CommandLine, tmp_path: Path) -> None:
    file = jsonl(tmp_path, [f"k{number}" for number in range(1_200)])
    lines = file.read_text().splitlines()
    lines[6] = "{"
    lines[700] = lines[700].replace("@", " at ")
    file.write_text("\n".join(lines))

    first = cli("batch", str(file), "--json")
    assert first.code == 65
    assert first.records[-1]["summary"] == {
        "accepted": 1_198,
        "replayed": 0,
        "refused": 1,
        "malformed": 1,
        "unknown": 0,
    }
    assert len({each["line"] for each in first.records[:-1]}) == 1_199
    assert {"line": 7, "problem": "is no JSON"} in first.records
    refused = json.loads(first.err)
    assert (refused["line"], refused["error"]["reason"]) == (701, "REQUEST_INVALID")

    again = cli("batch", str(file))
    assert again.code == 65
    assert again.out.startswith("accepted 0, already accepted 1,198, refused 1, malformed 1 in ")
    assert "line 7: is no JSON\n" in again.err
    assert "line 701: address: " in again.err


def test_a_batch_from_csv_by_stdin_and_one_that_is_strict(cli: CommandLine, tmp_path: Path) -> None:
    table = "idempotency_key,address,email.subject,email.text,labels.order\na,a@example.com,Hello,text,17\n"
    done = cli("batch", "-", "--format", "csv", given=table.encode())
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("accepted 1 in ")
    assert cli("get", "a", "--json").record["labels"] == {"order": "17"}

    file = jsonl(tmp_path, ["b", "c"])
    file.write_text(file.read_text().replace("\n", "\n{\n", 1))
    strict = cli("batch", str(file), "--strict", "--json")
    assert strict.code == 65
    assert strict.records[-1]["summary"] == {"accepted": 1, "replayed": 0, "refused": 0, "malformed": 1, "unknown": 0}


def test_stats_and_lanes(cli: CommandLine) -> None:
    cli("send", "--key", "k", *MAIL)
    shown = cli("stats")
    assert shown.code == 0
    header, email, *_ = shown.out.splitlines()
    assert header.split() == ["lane", "due", "scheduled", "processing", "lag", "standing"]
    assert email.split()[:3] == ["EMAIL", "1", "0"]
    assert email.split()[-1] == "STRANDED"
    assert "\nEMAIL: STRANDED, no worker serves it\n" in shown.out
    assert [line.split() for line in shown.out.splitlines()[5:7]] == [
        ["ended", "sent", "failed", "dead-lettered", "cancelled", "expired", "suppressed"],
        ["EMAIL", "0", "0", "0", "0", "0", "0"],
    ]
    assert "webhooks: 0 unassigned, 0 pending, 0 given up" in shown.out

    paused = cli("lanes", "pause", "email", "--reason", "the provider is moving")
    assert (paused.code, paused.err) == (0, "")
    assert paused.out.startswith("EMAIL: paused ")
    listed = cli("lanes")
    assert "paused" in listed.out.splitlines()[1]
    assert any(line.startswith("EMAIL: paused ") and "is moving" in line for line in listed.out.splitlines())
    resumed = cli("lanes", "resume", "EMAIL", "--json")
    assert (resumed.code, resumed.record["channel"]) == (0, "CHANNEL_EMAIL")
    assert "pause" not in resumed.record
    assert cli("lanes", "--json").records[0]["channel"] == "CHANNEL_EMAIL"
