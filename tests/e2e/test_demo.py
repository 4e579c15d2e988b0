"""`make demo`: a shop's day, on the PostgreSQL that comes along and on the oldest that is supported."""

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from sandbox.postgres import Postgres
from tests.e2e.conftest import ROOT, WITHIN

LAST_LINE = re.compile(
    r"demo: ok accepted=(?P<accepted>\d+) sent=(\d+) failed=(\d+) dead_lettered=(\d+) cancelled=(\d+) expired=(\d+) "
    r"suppressed=(\d+) webhooks=(?P<webhooks>\d+) duplicates=0 lost=0"
)


async def run(state: Path, **environment: str) -> tuple[int | None, list[str]]:
    """The exit code, and the lines that it printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sandbox.demo", "--state", str(state)),
        cwd=ROOT,
        env=os.environ | environment,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(WITHIN):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGTERM)
            await process.wait()
    return process.returncode, output.decode().splitlines()


def told(lines: list[str]) -> None:
    """The last line is what it must be, and its figures add up."""
    found = LAST_LINE.fullmatch(lines[-1])
    assert found, lines[-8:]
    accepted, *ends, webhooks = map(int, found.groups())
    assert accepted == sum(ends) == webhooks > 0
    assert all(ends[:5])  # one of each that this version has


async def test_the_demo_proves_itself(state: Path) -> None:
    code, lines = await run(state)
    told(lines)
    assert code == 0


async def test_the_demo_proves_itself_twice_on_a_database_of_ones_own(state: Path, postgres_15: Postgres) -> None:
    for _ in range(2):  # what an earlier day left behind is not counted
        code, lines = await run(state, DATABASE_URL=postgres_15.url)
        told(lines)
        assert code == 0


@pytest.mark.parametrize("url", ["postgresql://nobody:wrong@127.0.0.1:1/none", "nonsense"])
async def test_a_demo_that_cannot_run_says_why(state: Path, url: str) -> None:
    code, lines = await run(state, DATABASE_URL=url)
    assert code == 1
    assert lines[-1].startswith("demo: failed: ")
    assert "wrong" not in lines[-1]  # the password
