"""The page of the command line, as it stands there, against a `make up`."""

import asyncio
import json
import re
import sys
from pathlib import Path

from sandbox.plan import PORTS
from tests.e2e.conftest import ROOT, Up, up

PAGE = ROOT / "docs/cli.md"
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ENVIRONMENT = {
    "NOTIFYQUEUE_ADDRESS": "scheduler",
    "NOTIFYQUEUE_WORKER_ADDRESS": "worker",
    "NOTIFYQUEUE_DISPATCHER_ADDRESS": "dispatcher",
}

# By the script in its address, once.
REFUSED = "notifyqueue send --key order-16-shipped --to dot-554x1+ann@example.com --subject Hello --text Hello"


async def run(running: Up, folder: Path, before: str, script: str) -> str:
    """What a block prints in the shell of the first one, with the ports and the state of this `make up`."""
    script = f"{before}\n{script}".replace(".local/", f"{running.state}/")
    script = script.replace("$PWD/.venv/bin", str(Path(sys.executable).parent))
    for name, port in PORTS.items():
        script = script.replace(f"127.0.0.1:{port}", running.address(name))
    for variable, name in ENVIRONMENT.items():
        script = f"export {variable}={running.address(name)}\n{script}"
    process = await asyncio.create_subprocess_exec(
        *("bash", "-euo", "pipefail", "-c", script),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert (process.returncode, errors.decode()) == (0, "")
    return output.decode()


async def test_everything_works_as_the_page_says(state: Path, tmp_path: Path) -> None:
    blocks = [
        script if language == "sh" else f"python - <<'END'\n{script}END\n"
        for language, script in BLOCK.findall(PAGE.read_text())
    ]
    before, one, later, templates, dead, people, banned, file, stats, platform, programs, python = blocks
    async with up(state) as running:

        async def told(script: str) -> list[str]:
            return (await run(running, tmp_path, before, script)).splitlines()

        sent = await told(one)
        assert sent[0].startswith("accepted ")
        assert any(line.startswith("SENT, attempt 1 of ") for line in sent)  # watched to its end
        assert sent[-1].endswith("order-17-shipped")
        assert [line.split()[0] for line in await told(later)] == ["accepted", "rescheduled", "cancelled"]

        stored, *shown, listed, got, erased = await told(templates)
        assert (stored, erased) == ("stored shipped, version 1", "erased shipped")
        assert ["subject", "Bestellung", "17"] in [line.split() for line in shown]
        assert any(line.startswith("accepted ") for line in shown)
        assert listed == "shipped  EMAIL  version 1  de, en"
        assert json.loads(got)["template"]["name"] == "shipped"

        await told(REFUSED)
        *_, ended = await told("notifyqueue watch order-16-shipped || echo $?")
        assert ended == "10"  # FAILED
        listed, *redriven = await told(dead)
        assert listed.endswith("order-16-shipped")
        assert redriven == ["would redrive 1, 0 left", "redriven 1, 0 left"]
        *_, ended = await told("notifyqueue watch order-16-shipped")
        assert ended.startswith("SENT, ")

        put, *shown, listed, accepted, erased = await told(people)
        ada = "ada ada@example.com +447700900123 de-AT Europe/Vienna"
        assert (put, listed) == (f"put: {ada}", ada)
        assert ["locale", "de-AT"] in [line.split() for line in shown]
        assert accepted.startswith("accepted ")
        assert erased.startswith("deleted: ada, 1 notifications erased, ")

        put, listed, deleted, counted = await told(banned)
        assert put == "put: EMAIL you@example.com OPTED_OUT news, 0 in flight"
        assert " EMAIL you@example.com OPTED_OUT news " in listed
        assert deleted == "deleted: EMAIL you@example.com OPTED_OUT news"
        assert counted == "would delete 0, 0 left"

        first, second = await told(file)
        assert first.startswith("accepted 2 in ")
        assert second.startswith("accepted 0, already accepted 2 in ")
        assert (await told(stats))[0].startswith("lane ")

        steered = await told(platform)
        assert steered[0].startswith("EMAIL: paused by key:")
        assert steered[2].split()[-1] == "paused"
        assert any(line.startswith("EMAIL: paused by key:") and "is moving" in line for line in steered[3:])
        assert [line.split(": ")[1] for line in steered if re.match(r"EMAIL: r|worker \S+:|dispatcher ", line)] == [
            "running",
            "DRAINED, 0 under way",
            "RUNNING, 0 under way",
            "DRAINED, 0 under way",
            "RUNNING, 0 under way",
        ]
        assert "RUNNING" in steered[-1]

        (notification,) = map(json.loads, await told(programs))
        assert notification["idempotency_key"] == "order-17-shipped"
        assert len(await told(python)) == 1

        for command, key, reason in (
            ("get order-17-shipped", "nq_nobody_knows-this-key", "CREDENTIAL_INVALID"),
            ("list", "$(cat .local/platform_key)", "ROLE_MISSING"),
            ("lanes resume email", "$(cat .local/key)", "ROLE_MISSING"),
        ):
            refused = f"NOTIFYQUEUE_API_KEY={key} notifyqueue {command} 2>&1 || echo $?"
            line, code = await told(refused)
            assert reason in line
            assert code == "77"
