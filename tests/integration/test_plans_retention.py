"""What a batch of retention reads: what it looks at, however much lies before, behind and beside it."""

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest

from sandbox.postgres import Postgres
from services.worker.retention_store import Batch
from shared.database import Statements
from shared.removal import Removal
from tests import databases
from tests.endings import TABLES, Connection, Endings
from tests.plans import Explaining, Plan

AGE = timedelta(days=30)
LIMIT = 256
GONE, LEFT, FRESH = 20_000, 4_000, 2_000


async def fill(connection: Connection) -> None:
    endings = Endings(connection)
    await endings.fill(GONE, timedelta(days=50), "CANCELLED")
    await endings.fill(LEFT, timedelta(days=40), "SENT")
    await endings.fill(FRESH, timedelta(days=1), "EXPIRED")
    async with connection.transaction():
        batch = Batch(connection)
        looked, found = await batch.find_removable(UUID(int=0), timedelta(days=45), limit=GONE)
        removed = await batch.remove(found)
        assert looked.mark
        assert removed.attempts == removed.notifications == GONE
        await batch.move_mark("NOTIFICATIONS", looked.mark, caught_up=False, again=None)


@pytest.fixture(params=["postgres", "postgres_15"])
async def server(request: pytest.FixtureRequest) -> Postgres:
    found: Postgres = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=[databases.FRESH, "ANALYZE"], ids=["fresh", "analysed"])
async def connection(server: Postgres, request: pytest.FixtureRequest) -> AsyncIterator[Connection]:
    """To what is old enough, behind what was just removed and not yet vacuumed, beside what is not.

    Filled once: each test undoes what it does.
    """
    connection = await asyncpg.connect(await databases.filled(server, "plans_retention", fill, request.param))
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield connection
    finally:
        await transaction.rollback()
        await connection.close()


@pytest.fixture(params=[False, True], ids=["custom", "generic"])
def explaining(connection: Connection, request: pytest.FixtureRequest) -> Explaining:
    return Explaining(connection, generic=request.param)


def is_frugal(plan: Plan, *, most: int) -> None:
    shown = [(node.get("Relation Name"), node.get("Index Name"), node["Actual Rows"]) for node in plan.nodes("Scan")]
    for table in TABLES:
        assert "Seq Scan" not in plan.scans(table), shown
    assert max(node["Actual Rows"] for node in plan.nodes()) <= 2 * LIMIT, shown
    assert plan.buffers <= most, (plan.buffers, shown)


async def test_removing_reads_what_it_removes(connection: Connection, explaining: Explaining) -> None:
    batch = Batch(explaining)
    mark = await batch.take_mark("NOTIFICATIONS")
    assert mark
    looked, found = await batch.find_removable(mark, AGE, limit=LIMIT)
    assert (looked.count, len(found.notification_ids), len(found.event_ids)) == (LIMIT, LIMIT, LIMIT)
    removed = await Removal(explaining).remove(found.notification_ids, found.event_ids)
    assert removed.notifications == removed.attempts == removed.contents == LIMIT
    finding, *removing = explaining.plans[1:]
    is_frugal(finding, most=24 * LIMIT)
    for plan in removing:
        is_frugal(plan, most=24 * LIMIT)


@pytest.mark.parametrize("final", [False, True])
async def test_erasing_reads_what_it_looks_at(connection: Connection, explaining: Explaining, final: bool) -> None:
    mark = await Batch(connection).take_mark("NOTIFICATIONS")
    assert mark
    looked, erased = await Batch(explaining).erase_contents(mark, AGE, final=final, limit=LIMIT)
    assert (looked.count, erased) == (LIMIT, LIMIT if final else 0)
    is_frugal(explaining.plan, most=(16 if final else 8) * LIMIT)


async def test_when_all_is_done_it_reads_next_to_nothing(connection: Connection, explaining: Explaining) -> None:
    mark = await connection.fetchval(
        "SELECT id FROM notifyqueue.webhook_events WHERE status = 'SENT' ORDER BY id DESC LIMIT 1"
    )
    batch = Batch(explaining)
    looked, found = await batch.find_removable(mark, AGE, limit=LIMIT)
    assert (looked.count, looked.mark, found.notification_ids, found.event_ids) == (0, None, [], [])
    looked, erased = await batch.erase_contents(mark, AGE, final=True, limit=LIMIT)
    assert (looked.count, looked.mark, erased) == (0, None, 0)
    for plan in explaining.plans:
        is_frugal(plan, most=2 * LIMIT)


async def test_merging_reads_what_it_merges(connection: Connection, explaining: Explaining) -> None:
    await connection.execute(
        "INSERT INTO notifyqueue.status_deltas (tenant_id, channel, status, count)"
        " SELECT 'default', 'EMAIL', 'SENT', 1 FROM generate_series(1, 30000)"
    )
    ((merged,),) = await explaining.fetch(Statements("services.worker")["merge_totals"])
    plan = explaining.plan
    assert merged == 5_000
    # Which come first may be found by sorting so few; to find each of them again, nothing is read but it.
    assert "Tid Scan" in plan.scans("status_deltas"), plan
    assert max(node["Actual Rows"] * node["Actual Loops"] for node in plan.nodes()) <= 31_000, plan
    assert plan.buffers <= 8 * 5_000, plan
