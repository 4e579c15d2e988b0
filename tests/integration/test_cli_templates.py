"""`notifyqueue template` against the real scheduler: from a file to what is sent."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.conftest import login
from tests.processes import environment, ready, running

SHIPPED = {
    "default_locale": "en",
    "variants": [
        {"locale": "en", "sms": {"text": "Order {{ order }} left, {{ name }}."}},
        {"locale": "de", "sms": {"text": "Bestellung {{ order }} ist unterwegs, {{ name }}."}},
    ],
}
NAMES = ("--var", "name=Ann", "--variables", '{"order": 17}')
SMS = ("--to", "+447700900123", "--template", "shipped", "--channel", "sms")


@pytest.fixture
async def cli(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[CommandLine]:
    command_line = CommandLine(capsys, monkeypatch)
    async with running("services.scheduler", tmp_path, environment(login(database_url, "scheduler"))) as process:
        address = f"127.0.0.1:{await process.port()}"
        await ready(address, "notifyqueue.v1.Templates")
        command_line.calls(address)
        yield command_line


def test_the_life_of_a_template(cli: CommandLine, tmp_path: Path) -> None:
    none = cli("template", "list")
    assert (none.code, none.out, none.err) == (0, "", "none\n")
    file = tmp_path / "shipped.json"
    file.write_text(json.dumps(SHIPPED))
    stored = cli("template", "put", "shipped", f"@{file}")
    assert (stored.code, stored.out, stored.err) == (0, "stored shipped, version 1\n", "")
    assert cli("template", "put", "shipped", "@-", given=file.read_bytes()).out == "unchanged shipped, version 1\n"

    shown = cli("template", "render", "shipped", *NAMES, "--locale", "de-AT")
    assert (shown.code, shown.err) == (0, "")
    lines = [line.split(maxsplit=1) for line in shown.out.splitlines()]
    assert ["text", "Bestellung 17 ist unterwegs, Ann."] in [[name, text.rstrip()] for name, text in lines]
    assert "GSM_7, 33 units in 1 segments" in shown.out
    missing = cli("template", "render", "shipped", "--var", "name=geheim")
    assert (missing.code, "missing variables: order" in missing.err, "geheim" in missing.err) == (64, True, False)

    sent = cli("send", "--key", "order-17", *SMS, *NAMES, "--json")
    assert (sent.code, sent.err) == (0, "")
    found = sent.record["notification"]
    assert (found["template"], found["template_version"], found["channel"]) == ("shipped", 1, "CHANNEL_SMS")
    assert cli("send", "--key", "order-17", *SMS, *NAMES).out.startswith("already accepted ")

    (listed,) = cli("template", "list", "--json").records
    assert (listed["name"], listed["locales"]) == ("shipped", ["de", "en"])
    got = cli("template", "get", "shipped")
    assert "Order {{ order }} left, {{ name }}." in got.out
    again = cli("template", "get", "shipped", "--json").record
    put = {"default_locale": again["template"]["default_locale"], "variants": again["variants"]}
    assert cli("template", "put", "shipped", json.dumps(put)).out == "unchanged shipped, version 1\n"

    assert cli("template", "delete", "shipped").out == "erased shipped\n"
    gone = cli("template", "get", "shipped")
    assert (gone.code, "RESOURCE_NOT_FOUND" in gone.err) == (66, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("template", "put", "shipped", "nonsense"),
        ("template", "put", "shipped", '{"variants": [{"locale": "en", "fax": {}}]}'),
        ("template", "render", "shipped", "--variables", "[]"),
        ("template", "render", "shipped", "--var", "order"),
        ("send", "--key", "k", "--to", "a@example.com", "--template", "shipped"),
        ("send", "--key", "k", *SMS, "--sms", "besides"),
    ],
)
def test_what_is_not_understood_is_one_line(cli: CommandLine, arguments: tuple[str, ...]) -> None:
    refused = cli(*arguments)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
