"""`make up`: it starts everything, stops everything, and gets over having been killed."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import asyncpg
import pytest

from sandbox.postgres import Postgres
from tests.e2e.conftest import ROOT, Up, up
from tests.processes import SERVING, health
from tests.waiting import eventually


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def none_alive(running: Up) -> bool:
    return not any(alive(pid) for pid in running.place["pids"].values())


async def serves(running: Up) -> bool:
    return await health(running.address("scheduler"), "notifyqueue.v1.Scheduler") == SERVING


async def test_two_checkouts_run_side_by_side_and_each_gets_over_a_kill(state: Path, other_state: Path) -> None:
    async with up(state) as first, up(other_state) as second:
        await eventually(lambda: serves(first), within=60)
        await eventually(lambda: serves(second), within=60)
        assert not set(first.place["addresses"].values()) & set(second.place["addresses"].values())
        await is_refused(state)
        first.process.send_signal(signal.SIGKILL)
        await first.process.wait()
        await eventually(lambda: none_alive(first), within=60)
        (state / "up.json").unlink()
        await ctrl_c_stops_everything(state)
        assert await serves(second)


async def ctrl_c_stops_everything(state: Path) -> None:
    async with up(state) as running:
        assert await serves(running)
        assert await running.interrupt() == 0
        assert await none_alive(running)
        assert not (state / "postgres" / "postmaster.pid").exists()
        assert not (state / "up.json").exists()


async def is_refused(state: Path) -> None:
    """Where one runs already, another leaves it alone."""
    for name in ("page.txt", "up.json"):
        (state / name).rename(state / f"first-{name}")
    with pytest.raises(AssertionError, match="make up:"):
        async with up(state):
            pass
    (state / "first-up.json").rename(state / "up.json")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql://postgres:hunter2@127.0.0.1:1/notifyqueue", "the database cannot be prepared: "),
        ("postgresql://postgres:hunter2@127.0.0.1:hunter2/notifyqueue", "DATABASE_URL is malformed: "),
        ("mysql://postgres:hunter2@127.0.0.1/notifyqueue", "DATABASE_URL is malformed: "),
        ("postgresql://postgres:hunter2@127.0.0.1:1", "DATABASE_URL names no database"),
    ],
    ids=["refuses", "no port", "no PostgreSQL", "no database"],
)
async def test_a_database_that_cannot_be_used_is_one_clear_line(state: Path, url: str, reason: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sandbox.up", "--state", str(state)),
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": url},
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    (line,) = errors.decode().splitlines()
    assert (process.returncode, line.startswith(f"make up: {reason}")) == (1, True), line
    assert "hunter2" not in line


async def test_a_given_database_is_used_with_a_login_for_each_process(state: Path, postgres_15: Postgres) -> None:
    connection = await asyncpg.connect(postgres_15.url)
    await connection.execute("DROP DATABASE IF EXISTS given")
    await connection.execute("CREATE DATABASE given")
    url = postgres_15.url_of("given")
    async with up(state, {"DATABASE_URL": url}) as running:
        assert await serves(running)
        assert not (state / "postgres").exists()
        rows = await connection.fetch("SELECT DISTINCT usename FROM pg_stat_activity WHERE datname = 'given'")
        assert len({row["usename"] for row in rows}) == 4
        assert "postgres" not in {row["usename"] for row in rows}
    await connection.execute("DROP DATABASE given WITH (FORCE)")
    await connection.close()
