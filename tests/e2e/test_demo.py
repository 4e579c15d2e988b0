"""`make demo`: the day of two shops, on the PostgreSQL that comes along and on the oldest that is supported."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest

from sandbox.demo.story import REFUSALS
from sandbox.postgres import Postgres
from tests.e2e.conftest import ROOT, WITHIN, terminated
from tests.ports import ports
from tests.waiting import eventually

LAST_LINE = re.compile(
    r"demo: ok accepted=(?P<accepted>\d+) sent=(\d+) failed=(\d+) dead_lettered=(\d+) cancelled=(\d+) expired=(\d+) "
    r"suppressed=(\d+) webhooks=(?P<webhooks>\d+) duplicates=0 lost=0"
)


@asynccontextmanager
async def started(state: Path, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """From when it has its ports, or has ended without."""
    place = state / "up.json"
    place.unlink(missing_ok=True)  # a killed one's
    async with AsyncExitStack() as stack:
        async with ports():
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "sandbox.demo", "--state", str(state)),
                cwd=ROOT,
                env=os.environ | environment,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
            stack.push_async_callback(terminated, process)
            await eventually(lambda: process.returncode is not None or place.exists(), within=WITHIN)
        yield process


async def ended(process: asyncio.subprocess.Process) -> tuple[int | None, list[str]]:
    """The exit code, and the lines that it printed."""
    async with asyncio.timeout(WITHIN):
        output, _ = await process.communicate()
    assert b"Traceback" not in output, output.decode()
    return process.returncode, output.decode().splitlines()


async def run(state: Path, **environment: str) -> tuple[int | None, list[str]]:
    async with started(state, **environment) as process:
        return await ended(process)


ENDPOINTS = "SELECT count(*) FROM notifyqueue.webhook_endpoints WHERE description = 'demo' AND deleted_at IS NULL"


async def in_the_midst(state: Path) -> dict[str, Any]:
    """Once some of the day has arrived, but not all: the processes, and where they are."""
    file = state / "up.json"

    async def some() -> dict[str, Any]:
        if not file.exists():
            return {}
        place: dict[str, Any] = json.loads(file.read_text())
        url = f"http://{place['addresses']['sandbox']}/mails"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return place if await answer.json() else {}

    return await eventually(some, within=WITHIN)


def told(lines: list[str]) -> None:
    """The last line is what it must be, and its figures add up."""
    found = LAST_LINE.fullmatch(lines[-1])
    assert found, "\n".join(lines[-12:])
    accepted, *ends, webhooks = map(int, found.groups())
    assert accepted == sum(ends) == webhooks > 0
    assert all(ends)  # one of each
    for refusal in REFUSALS:
        assert any(line.split() == [*refusal.title.split(), "refused", refusal.reason] for line in lines), lines


async def test_the_demo_proves_itself(state: Path) -> None:
    """After two that were broken off, too: it counts its own."""
    async with started(state) as process:
        place = await in_the_midst(state)
        os.kill(place["pids"]["worker"], signal.SIGKILL)
        code, lines = await ended(process)
    assert (code, lines[-1]) == (1, "demo: failed: the worker ended with -9")

    async with started(state) as process:
        await in_the_midst(state)
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()

    code, lines = await run(state, OTEL_TRACES_EXPORTER="console")
    told(lines)
    assert code == 0
    assert await endpoints(state) == 0  # nor has the killed one left any behind
    shows_the_trace_of_one_notification(lines)


def shows_the_trace_of_one_notification(lines: list[str]) -> None:
    """Where that is asked for."""
    (begun,) = [number for number, line in enumerate(lines) if line.startswith("the trace of ")]
    tree = "\n".join(lines[begun + 1 : -1])
    for words in ("(shop, client)", "(scheduler, server)", "(scheduler, producer)", "(dispatcher, client)"):
        assert words in tree, tree
    assert len(re.findall(r"deliver \w+ \(worker, consumer\)", tree)) > 1, tree  # for it failed first


async def test_the_demo_proves_itself_on_a_database_of_ones_own(state: Path, postgres_15: Postgres) -> None:
    async with started(state, DATABASE_URL=postgres_15.url) as process:
        await in_the_midst(state)
        process.send_signal(signal.SIGINT)
        code, lines = await ended(process)
    assert (code, lines[-1]) == (1, "demo: interrupted")

    code, lines = await run(state, DATABASE_URL=postgres_15.url)
    told(lines)
    assert code == 0


@pytest.mark.parametrize("url", ["postgresql://nobody:wrong@127.0.0.1:1/none", "nonsense"])
async def test_a_demo_that_cannot_run_says_why(state: Path, url: str) -> None:
    code, lines = await run(state, DATABASE_URL=url)
    assert code == 1
    assert lines[-1].startswith("demo: failed: ")
    assert "wrong" not in lines[-1]  # the password


async def endpoints(state: Path) -> int:
    with Postgres(state / "postgres") as server:
        connection = await asyncpg.connect(server.url)
        try:
            return int(await connection.fetchval(ENDPOINTS))
        finally:
            await connection.close()
