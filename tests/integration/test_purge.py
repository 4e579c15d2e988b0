"""Purging: the owner removes dead notifications, which retention keeps."""

import asyncio
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from services.worker.retention import Retention
from services.worker.retention_store import RetentionStore
from shared import admin
from shared.database import Database
from shared.purge import Purged, purge
from shared.removal import sql
from tests.conftest import login
from tests.endings import Endings
from tests.notifications import Notifications
from tests.plans import Explaining
from tests.waiting import eventually

DAY = timedelta(days=1)


@pytest.fixture
def endings(notifications: Notifications) -> Endings:
    return Endings(notifications.connection)


@pytest.mark.parametrize("database_url", ["postgres", "postgres_15"], indirect=True)
async def test_what_is_purged_and_what_is_not(endings: Endings) -> None:
    failed = await endings.ended("failed", "FAILED", 10 * DAY)
    redriven = await endings.accept("redriven", 20 * DAY)
    await endings.end(redriven, "DEAD_LETTERED", 20 * DAY)
    await endings.redrive(redriven)
    await endings.end(redriven, "FAILED", 10 * DAY)
    kept = [
        await endings.ended("young", "FAILED", 8 * DAY),
        await endings.ended("other", "DEAD_LETTERED", 10 * DAY),
        await endings.ended("sent", "SENT", 10 * DAY),
        await endings.accept("pending", 10 * DAY),
    ]
    reporting = await endings.accept("reporting", 10 * DAY)
    await endings.end(reporting, "FAILED", 10 * DAY, deliveries=("DELIVERED", "OPEN"))
    before = [await endings.left(id_) for id_ in (*kept, reporting)]

    assert await purge(endings.connection, "default", "FAILED", 9 * DAY, dry_run=True) == Purged(2, 1)
    assert await endings.left(failed)
    assert await purge(endings.connection, "somebody else", "FAILED", 9 * DAY) == Purged()
    assert await purge(endings.connection, "default", "FAILED", 9 * DAY) == Purged(2, 1)

    assert [await endings.left(id_) for id_ in (failed, redriven)] == [{}, {}]
    assert [await endings.left(id_) for id_ in (*kept, reporting)] == before
    assert await endings.orphans() == {}
    assert await purge(endings.connection, "default", "DEAD_LETTERED", datetime.now(UTC) - 9 * DAY) == Purged(1, 0)


async def test_what_retention_left_of_a_dead_one_is_purged(endings: Endings, database_url: str) -> None:
    await endings.fill(2_500, 40 * DAY, "FAILED")
    async with Database(login(database_url, "worker"), name="test") as database:
        retention = Retention(RetentionStore(database), retention=30 * DAY, content_retention=7 * DAY)

        async def sweep() -> None:
            while not await retention.sweep():
                pass

        async with asyncio.timeout(60):
            done, _ = await asyncio.gather(purge(endings.connection, "default", "FAILED", 30 * DAY), sweep())
    assert done == Purged(2_500)
    assert await endings.orphans() == {}


WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


async def test_it_does_not_remove_beside_retention(endings: Endings, database_url: str) -> None:
    await endings.ended("failed", "FAILED", 10 * DAY)
    watcher = await asyncpg.connect(database_url)
    async with Database(login(database_url, "worker"), name="test") as database:
        async with RetentionStore(database).batch() as batch:
            assert await batch.take_mark("NOTIFICATIONS")
            purging = asyncio.create_task(purge(endings.connection, "default", "FAILED", 9 * DAY))
            await eventually(lambda: watcher.fetchval(WAITING))
            assert not purging.done()
        assert await purging == Purged(1)
    await watcher.close()


async def test_a_batch_is_found_by_status(endings: Endings) -> None:
    await endings.fill(3_000, DAY, "SENT")
    await endings.fill(20, DAY, "FAILED")
    await endings.connection.execute("ANALYZE")
    for generic in (False, True):
        explaining = Explaining(endings.connection, generic=generic)
        args = ("default", "00000000-0000-0000-0000-000000000000", None, timedelta(hours=1))
        assert len(await explaining.fetch(sql["find_dead"], *args)) == 20
        assert "notifications_by_rare_status" in explaining.plan.indexes()


@pytest.fixture
def owner(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)


@pytest.mark.usefixtures("owner")
async def test_the_command_says_what_it_did(endings: Endings, capsys: pytest.CaptureFixture[str]) -> None:
    await endings.ended("old", "FAILED", 10 * DAY)
    await endings.ended("young", "FAILED", DAY)
    arguments = ["purge", "--tenant", "default", "--status", "failed", "--before"]
    for more in (["9d", "--dry-run"], ["9d"], ["2999-01-01T00:00:00Z"]):
        assert await asyncio.to_thread(admin.main, [*arguments, *more]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "would purge 1 notification",
        "purged 1 notification",
        "purged 1 notification",
    ]


@pytest.mark.parametrize("before", ["yesterday", "2026-01-01", "2026-01-01T00:00:00", "9"])
def test_a_time_without_its_zone_is_refused(before: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        admin.main(["purge", "--tenant", "default", "--status", "FAILED", "--before", before])
    assert "--before" in capsys.readouterr().err
