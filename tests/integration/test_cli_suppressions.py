"""`notifyqueue suppression` against the real scheduler."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.conftest import login
from tests.processes import environment, ready, running

TO = ("--channel", "email", "--to", "Gone@Example.com")


@pytest.fixture
async def cli(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[CommandLine]:
    command_line = CommandLine(capsys, monkeypatch)
    async with running("services.scheduler", tmp_path, environment(login(database_url, "scheduler"))) as process:
        address = f"127.0.0.1:{await process.port()}"
        await ready(address, "notifyqueue.v1.Recipients")
        command_line.calls(address)
        yield command_line


def test_the_life_of_a_suppression(cli: CommandLine) -> None:
    none = cli("suppression", "list")
    assert (none.code, none.out, none.err) == (0, "", "none\n")
    put = cli("suppression", "put", *TO, "--source", "opted-out")
    assert (put.code, put.out, put.err) == (0, "put: EMAIL gone@example.com OPTED_OUT, 0 in flight\n", "")
    assert cli("suppression", "put", *TO, "--source", "opted-out").out.startswith("unchanged: ")
    refused = cli("send", "--key", "order-17", "--to", "gone@example.com", "--subject", "Hello", "--text", "Hello")
    assert (refused.code, "RECIPIENT_OPTED_OUT" in refused.err) == (73, True)

    for number in range(3):
        assert cli("suppression", "put", *TO, "--source", "bounced", "--category", f"c{number}").code == 0
    (listed,) = cli("suppression", "list", *TO, "--source", "opted-out", "--json").records
    assert (listed["address"], listed["source"]) == ("gone@example.com", "SUPPRESSION_SOURCE_OPTED_OUT")
    assert len(cli("suppression", "list", "--limit", "2").out.splitlines()) == 2

    many = ("suppression", "delete-all", "--source", "bounced", "--since", "2026-01-01")
    assert cli(*many, "--limit", "1", "--dry-run").out == "would delete 1, 2 left\n"
    assert cli(*many, "--limit", "2").out == "deleted 2, 1 left\n"
    assert cli(*many, "--limit", "0").out == "deleted 1, 0 left\n"

    deleted = cli("suppression", "delete", *TO, "--source", "opted-out")
    assert (deleted.code, deleted.out) == (0, "deleted: EMAIL Gone@Example.com OPTED_OUT\n")
    assert cli("suppression", "delete", *TO, "--source", "opted-out").code == 66
    assert cli("suppression", "list").out == ""

    # Of people whom notifications name.
    nobody = cli("subscriber", "list")
    assert (nobody.code, nobody.err) == (0, "none\n")
    person = ("--email", "Ada@Example.com", "--locale", "de-at", "--time-zone", "Europe/Vienna")
    assert cli("subscriber", "put", "ada", *person).out == "put: ada Ada@example.com de-AT Europe/Vienna\n"
    assert cli("subscriber", "put", "ada", *person).out.startswith("unchanged: ada ")
    (found,) = cli("subscriber", "list", *TO[:2], "--to", "ada@example.com", "--json").records
    assert found["subscriber"] == "ada"
    assert "Europe/Vienna" in cli("subscriber", "get", "ada").out
    assert cli("subscriber", "get", "bob").code == 66
    assert cli("send", "--key", "by-name", "--subscriber", "ada", "--subject", "Hello", "--text", "Hello").code == 0
    assert [one["subscriber"] for one in cli("list", "--subscriber", "ada", "--json").records] == ["ada"]
    missing = cli("send", "--key", "text", "--subscriber", "ada", "--sms", "Hello")
    assert (missing.code, "ADDRESS_MISSING" in missing.err) == (73, True)
    hers = ("--subscriber", "ada", "--source", "opted-out")
    assert cli("suppression", "put", *hers).out == "put: ALL subscriber ada OPTED_OUT, 0 in flight\n"
    assert len(cli("suppression", "list", "--subscriber", "ada").out.splitlines()) == 1
    assert cli("suppression", "delete", *hers).out == "deleted: ALL subscriber ada OPTED_OUT\n"
    erased = cli("subscriber", "delete", "ada")
    assert erased.out == "deleted: ada, 1 notifications erased, 1 of them cancelled, 0 in flight\n"
    assert cli("subscriber", "delete", "ada").code == 66


@pytest.mark.parametrize(
    "arguments",
    [
        ("put", *TO),
        ("put", *TO, "--source", "bad luck"),
        ("delete", "--to", "a@example.com", "--source", "bounced"),
        ("put", *TO, "--subscriber", "ada", "--source", "bounced"),
        ("delete-all", "--source", "bounced"),
    ],
)
def test_what_is_not_said_is_asked_for(cli: CommandLine, arguments: tuple[str, ...]) -> None:
    assert cli("suppression", *arguments).code == 2
