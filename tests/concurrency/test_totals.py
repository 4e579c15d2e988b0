"""What ended is counted once: while many end and many merge, and when one that merges dies."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress

import asyncpg
import pytest

from services.scheduler.store import Store
from services.worker.retention_store import RetentionStore
from services.worker.totals import FULL, INTERVAL, SOON, Totals
from shared.batching import Contention
from shared.database import Database, Statements
from tests.conftest import login
from tests.notifications import Notifications
from tests.waiting import eventually

MERGE = Statements("services.worker")["merge_totals"]
MERGERS = 8
STATEMENTS, ENDED = 200, 5

on_every_server = pytest.mark.parametrize("database_url", ["postgres", "postgres_15"], indirect=True)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def opened(stack: AsyncExitStack, url: str, service: str) -> Database:
    return await stack.enter_async_context(Database(login(url, service), name="test"))


async def count_some(notifications: Notifications, rows: int, *, tenant: str = "default") -> None:
    await notifications.connection.execute(
        "INSERT INTO notifyqueue.status_deltas (tenant_id, channel, status, count)"
        " SELECT $2, 'EMAIL', 'SENT', 1 FROM generate_series(1, $1)",
        *(rows, tenant),
    )


async def total(store: Store, tenant: str | None = None) -> int:
    return sum(count.count for count in (await store.read_totals(tenant)).values())


async def left(notifications: Notifications) -> int:
    found: int = await notifications.connection.fetchval("SELECT count(*) FROM notifyqueue.status_deltas")
    return found


@on_every_server
async def test_eight_that_merge_while_others_end_count_each_end_once_and_so_does_whoever_reads_meanwhile(
    database_url: str, notifications: Notifications, stack: AsyncExitStack
) -> None:
    await notifications.connection.execute(
        "INSERT INTO notifyqueue.notifications (tenant_id, idempotency_key, fingerprint, channel, address, priority,"
        " due_at, next_attempt_at, max_attempts) SELECT 'default', n, '', 'EMAIL', 'a@example.com', 2, now(), now(), 5"
        " FROM generate_series(1, $1) AS n",
        STATEMENTS * ENDED,
    )
    reader = Store(await opened(stack, database_url, "scheduler"))
    done = asyncio.Event()

    async def end() -> None:
        for number in range(STATEMENTS):
            await notifications.connection.execute(
                "UPDATE notifyqueue.notifications SET status = 'CANCELLED', finished_at = now()"
                " WHERE idempotency_key::int BETWEEN $1 AND $2",
                *(number * ENDED + 1, number * ENDED + ENDED),
            )
        done.set()

    async def merge(store: RetentionStore) -> None:
        while not done.is_set():
            with suppress(Contention):
                await store.merge_totals()

    seen: list[int] = []

    async def read() -> None:
        while not done.is_set():
            seen.append(await total(reader))

    mergers = [RetentionStore(await opened(stack, database_url, "worker")) for _ in range(MERGERS)]
    await asyncio.gather(end(), read(), *map(merge, mergers))
    assert seen == sorted(seen)  # nothing is seen to vanish, or twice, while it moves
    assert all(count % ENDED == 0 for count in seen)
    assert await total(reader) == STATEMENTS * ENDED
    await mergers[0].merge_totals()
    assert (await left(notifications), await total(reader)) == (0, STATEMENTS * ENDED)


async def test_one_that_dies_halfway_has_merged_nothing_and_its_rows_are_merged_by_another(
    database_url: str, notifications: Notifications, stack: AsyncExitStack
) -> None:
    reader = Store(await opened(stack, database_url, "scheduler"))
    other = RetentionStore(await opened(stack, database_url, "worker"))
    await count_some(notifications, 100)
    dying = await asyncpg.connect(login(database_url, "worker"))
    await dying.execute("BEGIN")
    assert await dying.fetchval(MERGE) == 100
    await count_some(notifications, 20, tenant="another")
    assert await other.merge_totals() == 20  # what is held is passed over, and not waited for
    assert await total(reader) == 120
    dying.terminate()

    async def rest() -> int:
        return await other.merge_totals()

    assert await eventually(rest) == 100
    assert (await left(notifications), await total(reader), await total(reader, "default")) == (0, 120, 100)


async def test_what_is_much_is_merged_in_parts(
    database_url: str, notifications: Notifications, stack: AsyncExitStack
) -> None:
    await count_some(notifications, FULL + 1)
    totals = Totals(RetentionStore(await opened(stack, database_url, "worker")))
    assert await totals.merge() == 0
    assert await left(notifications) == 1
    assert await totals.merge() >= INTERVAL / 2
    assert await left(notifications) == 0


async def test_who_finds_the_totals_locked_comes_back_soon(
    database_url: str, notifications: Notifications, stack: AsyncExitStack
) -> None:
    await count_some(notifications, 3)
    totals = Totals(RetentionStore(await opened(stack, database_url, "worker")))
    await totals.merge()
    await count_some(notifications, 3)
    async with notifications.connection.transaction():
        await notifications.connection.execute("SELECT FROM notifyqueue.status_totals FOR UPDATE")
        assert await totals.merge() == SOON
    await totals.merge()
    assert await total(Store(await opened(stack, database_url, "scheduler"))) == 6
