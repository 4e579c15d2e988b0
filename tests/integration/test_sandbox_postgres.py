"""The private PostgreSQL outlives what kills it or its owner, and is nobody else's."""

import asyncio
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import pytest

from sandbox import postgres
from sandbox.postgres import AlreadyOwned, Postgres, PostgresError, folder_for
from tests.programs import require_program

CHECKOUT = Path(__file__).resolve().parents[2]
HASTY = {"fsync": "off"}
PATIENCE = 60.0

OWNER = """
import pathlib, signal, sys
from sandbox.postgres import Postgres
data, binaries = (pathlib.Path(argument) for argument in sys.argv[1:])
with Postgres(data, {"fsync": "off"}, binaries) as server:
    print(server.pid, flush=True)
    signal.pause()
"""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only for root does another account run the server")


@pytest.fixture
def folder() -> Iterator[Path]:
    # Not tmp_path, which is closed to the account that runs the server for root.
    path = Path(tempfile.mkdtemp(prefix="notifyqueue-tests-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(params=["as found", "PostgreSQL 15"])
def binaries(request: pytest.FixtureRequest) -> Path:
    if request.param == "as found":
        return postgres.find_binaries()
    return require_program("PostgreSQL 15", Path("/usr/lib/postgresql/15/bin/postgres")).parent


def run(url: str, statement: str) -> object:
    async def fetch() -> object:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    return asyncio.run(fetch())


def write_a_row(server: Postgres) -> None:
    run(server.url, "CREATE TABLE kept AS SELECT 1 AS row")


def rows(server: Postgres) -> object:
    return run(server.url, "SELECT count(*) FROM kept")


@contextmanager
def run_elsewhere(data: Path, binaries: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another process that owns the cluster, and its server's pid."""
    command = [sys.executable, "-c", OWNER, str(data), str(binaries)]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as owner:
        try:
            assert owner.stdout
            assert select.select([owner.stdout], [], [], PATIENCE)[0], "the other run does not come up"
            yield owner, int(owner.stdout.readline())
        finally:
            owner.kill()


def leave_behind(data: Path, binaries: Path) -> int:
    """What kill -9 of a run leaves: a server without an owner. Answers its pid."""
    with run_elsewhere(data, binaries) as (owner, pid):
        owner.kill()
    return pid


def test_the_first_start_makes_a_server_that_only_its_password_opens(folder: Path, binaries: Path) -> None:
    with Postgres(folder / "data", HASTY, binaries) as server:
        assert run(server.url, "SELECT current_database()") == "notifyqueue"
        assert run(server.url, "SHOW data_directory") == str(folder / "data")
        assert run(server.url, "SHOW timezone") == "UTC"
        assert run(server.url, "SHOW server_encoding") == "UTF8"
        assert run(server.url, "SHOW lc_messages") == "C"
        assert run(server.url, "SHOW log_error_verbosity") == "terse"
        assert run(server.url, "SHOW fsync") == "off"
        with pytest.raises(asyncpg.InvalidPasswordError):
            run(f"postgresql://postgres:guessed@127.0.0.1:{server.port}/notifyqueue", "SELECT 1")
    assert (folder / "data.password").stat().st_mode & 0o777 == 0o600


def test_the_next_run_finds_what_was_written_at_the_same_port(folder: Path) -> None:
    with Postgres(folder / "data", HASTY) as first:
        write_a_row(first)
    assert first.pid is None
    with Postgres(folder / "data", HASTY) as second:
        assert rows(second) == 1
        assert second.url == first.url


def test_it_stops_and_starts_as_often_as_one_likes(folder: Path) -> None:
    with Postgres(folder / "data", HASTY) as server:
        pid = server.pid
        server.start()
        assert server.pid == pid
        server.stop()
        server.stop()
        assert server.pid is None
        server.start()
        assert run(server.url, "SELECT 1") == 1


def test_a_second_run_is_refused_while_the_first_lives(folder: Path) -> None:
    with run_elsewhere(folder / "data", postgres.find_binaries()) as (owner, pid):
        with pytest.raises(AlreadyOwned, match=f"process {owner.pid} runs the PostgreSQL in {folder}"):
            Postgres(folder / "data", HASTY).__enter__()
        owner.kill()
    with Postgres(folder / "data", HASTY) as next_run:
        assert next_run.pid == pid, "the refused run has touched the server"


def test_the_server_that_a_killed_run_left_behind_is_adopted(folder: Path, binaries: Path) -> None:
    pid = leave_behind(folder / "data", binaries)
    with Postgres(folder / "data", HASTY, binaries) as server:
        assert server.pid == pid
        assert run(server.url, "SELECT 1") == 1
    assert not (folder / "data" / "postmaster.pid").exists()


def test_an_adopted_server_can_be_killed_and_started_again(folder: Path) -> None:
    leave_behind(folder / "data", postgres.find_binaries())
    with Postgres(folder / "data", HASTY) as server:
        write_a_row(server)
        server.kill()
        server.start()
        assert rows(server) == 1


def test_a_run_and_its_server_killed_are_started_again(folder: Path, binaries: Path) -> None:
    os.kill(leave_behind(folder / "data", binaries), signal.SIGKILL)
    with Postgres(folder / "data", HASTY, binaries) as server:
        assert run(server.url, "SELECT 1") == 1


def test_a_killed_server_comes_back_with_what_was_committed(folder: Path, binaries: Path) -> None:
    with Postgres(folder / "data", HASTY, binaries) as server:
        write_a_row(server)
        before = server.url
        server.kill()
        with pytest.raises(PostgresError, match="no server"):
            server.kill()
        server.start()
        assert rows(server) == 1
        assert server.url == before


def test_two_clusters_stand_side_by_side(folder: Path) -> None:
    with Postgres(folder / "one", HASTY) as one, Postgres(folder / "two", HASTY) as two:
        write_a_row(one)
        assert one.port != two.port
        assert run(two.url, "SELECT to_regclass('kept') IS NULL") is True


def test_a_port_that_somebody_took_meanwhile_is_given_up(folder: Path) -> None:
    with Postgres(folder / "data", HASTY) as server:
        before = server.port
    with socket.create_server(("127.0.0.1", before)), Postgres(folder / "data", HASTY) as server:
        assert server.port != before
        assert run(server.url, "SELECT 1") == 1


def test_a_stranger_at_the_port_of_a_killed_server_is_not_adopted(folder: Path) -> None:
    with Postgres(folder / "mine", HASTY) as mine:
        write_a_row(mine)
        mine.kill()  # and its postmaster.pid stays, and says: ready, at this port
        (folder / "strange.port").write_text(str(mine.port))
        with Postgres(folder / "strange", HASTY) as strange:
            assert strange.port == mine.port
            mine.start()
            assert mine.pid != strange.pid
            assert rows(mine) == 1


def test_an_initdb_that_was_cut_short_leaves_nothing(folder: Path) -> None:
    (folder / ".data-cut").mkdir()
    (folder / ".data-cut" / "PG_VERSION").touch()
    with Postgres(folder / "data", HASTY) as server:
        assert run(server.url, "SELECT 1") == 1
    assert not list(folder.glob(".data*"))


def test_a_port_whose_writing_was_cut_short_is_chosen_anew(folder: Path) -> None:
    (folder / "data.port").touch()
    with Postgres(folder / "data", HASTY) as server:
        assert run(server.url, "SELECT 1") == 1


def test_a_start_that_cannot_succeed_says_why_and_gives_the_lock_back(folder: Path) -> None:
    with pytest.raises(PostgresError, match="shared_buffers"):
        Postgres(folder / "data", {"shared_buffers": "much"}).__enter__()
    with Postgres(folder / "data", HASTY) as server:
        assert run(server.url, "SELECT 1") == 1


@as_root
def test_a_folder_that_the_server_cannot_reach_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(PostgresError, match="is closed to nobody"):
        Postgres(tmp_path / "data").__enter__()


@as_root
def test_a_checkout_in_a_private_home_has_programs_and_data_where_the_server_reaches_them(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    wheel = require_program("the wheel of PostgreSQL", postgres._wheel())
    for part in wheel.parent.glob(f"{wheel.name}*"):
        (tmp_path / part.name).symlink_to(part)
    monkeypatch.delenv("NOTIFYQUEUE_PG_BIN", raising=False)
    monkeypatch.setattr(postgres, "_wheel", lambda: tmp_path / wheel.name)
    monkeypatch.setattr(postgres, "COMMON", folder)
    assert folder_for(folder) == folder / ".local" / "postgres"
    data = folder_for(tmp_path)
    assert data.is_relative_to(folder)
    for _ in range(2):
        with Postgres(data, HASTY) as server:
            assert run(server.url, "SELECT 1") == 1


@as_root
def test_a_folder_that_somebody_else_took_first_is_not_trusted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(postgres, "COMMON", folder)
    theirs = folder_for(tmp_path).parent
    os.chown(theirs, 65534, 65534)
    with pytest.raises(PostgresError, match="belongs to somebody else"):
        folder_for(tmp_path)
