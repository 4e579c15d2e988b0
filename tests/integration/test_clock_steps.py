"""The database's clock steps back a few seconds: whatever that delays, nothing is sent twice, too soon, or too often.

A clock that steps back looks, from then on, as if all that was written before had been written later.
"""

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import uuid4

import pytest

from services.worker.store import Store, WorkerStore
from shared.database import Database
from tests.conftest import login
from tests.integration.conftest import StartWorker
from tests.notifications import Notifications
from tests.providers import ScriptedProvider
from tests.recipients import TimedProvider, limit, most_in_a_window
from tests.waiting import eventually

BACK = timedelta(seconds=5)
LEASE = timedelta(minutes=1)


async def step_back(notifications: Notifications, span: timedelta = BACK) -> None:
    """Every instant in every table, in one transaction."""
    columns = await notifications.connection.fetch(
        "SELECT c.table_name, string_agg(format('%1$I = %1$I + $1', c.column_name), ', ') AS moved"
        " FROM information_schema.columns AS c JOIN information_schema.tables AS t USING (table_schema, table_name)"
        " WHERE c.table_schema = 'notifyqueue' AND c.data_type LIKE 'timestamp%' AND t.table_type = 'BASE TABLE'"
        " AND c.table_name <> 'schema_migrations' GROUP BY c.table_name"
    )
    assert len(columns) > 10
    async with notifications.connection.transaction():
        for table, moved in columns:
            await notifications.connection.execute(f"UPDATE notifyqueue.{table} SET {moved}", span)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with Database(login(database_url, "worker"), name="test") as database:
        yield database


async def claim(store: Store) -> int:
    claims = await store.claim_due(
        "EMAIL",
        limit=8,
        classes=(3, 2, 1),
        due_for=timedelta(),
        token=uuid4(),
        worker_id=uuid4(),
        lease=LEASE,
        take_suspect=True,
    )
    return len(claims)


async def test_a_lease_is_not_over_sooner_and_what_is_not_due_is_not_due(
    notifications: Notifications, database: Database
) -> None:
    store = WorkerStore(database)
    await notifications.insert("held")
    await notifications.insert("later", due_in=timedelta(seconds=1))
    await notifications.insert("expires", due_in=timedelta(seconds=3))
    await notifications.connection.execute(
        "UPDATE notifyqueue.notifications SET expire_at = due_at + interval '1 us' WHERE idempotency_key = 'expires'"
    )
    assert await claim(store) == 1
    await step_back(notifications)
    async with store.transaction() as transaction:
        assert await transaction.lock_expired_claims(timedelta()) == []
    assert await claim(store) == 0
    assert await store.expire_overdue() == []
    due = await store.read_next_due("EMAIL", suspects=True)
    assert due is not None
    assert 5 < due <= 6
    assert await notifications.statuses() == {"PROCESSING": 1, "PENDING": 2}


async def test_a_start_in_the_future_holds_its_slot_and_whoever_waits_for_it_is_called_up(
    notifications: Notifications, start_worker: StartWorker, database_url: str
) -> None:
    await limit(notifications, 1, timedelta(seconds=2))
    provider = TimedProvider()
    first, second = await notifications.insert_many(2)
    await start_worker(database_url, provider, poll_interval=0.2)

    async def one_waits() -> bool:
        return bool(await notifications.connection.fetchval("SELECT count(*) FROM notifyqueue.recipient_gates"))

    await eventually(one_waits)
    await eventually(lambda: len(provider.seen) == 1)
    await step_back(notifications, timedelta(seconds=1))
    await eventually(lambda: sent(notifications, 2))
    assert most_in_a_window(provider.calls["someone@example.com"], timedelta(seconds=2)) == 1
    assert provider.requests == {first: 1, second: 1}


async def test_what_is_under_way_is_renewed_recorded_and_sent_once(
    notifications: Notifications, start_worker: StartWorker, database_url: str
) -> None:
    provider = ScriptedProvider()
    provider.gate.clear()
    ids = await notifications.insert_many(5)
    for _ in range(2):
        await start_worker(database_url, provider)
    await eventually(lambda: len(provider.seen) == 5)
    await step_back(notifications)
    before = await renewals(notifications)
    await eventually(lambda: renewed(notifications, before))
    provider.gate.set()
    await eventually(lambda: sent(notifications, 5))
    assert provider.requests == dict.fromkeys(ids, 1)
    assert [await notifications.events(id_) for id_ in ids] == [["SENT"]] * 5


async def test_a_breaker_that_opened_in_the_future_is_open_and_is_probed(
    notifications: Notifications, database: Database
) -> None:
    store = Store(database)
    worker = uuid4()
    assert await store.open_breaker("EMAIL", 0, "451", timedelta(seconds=5), worker)
    await store.hold_lane("SMS", timedelta(seconds=5))
    await step_back(notifications)
    facts = {lane.channel: lane for lane in await store.beat(worker, "RUNNING", [])}
    assert facts["EMAIL"].open
    assert 5 < facts["EMAIL"].probe_in <= 10
    assert 5 < facts["SMS"].held_for <= 10


async def renewals(notifications: Notifications) -> object:
    return await notifications.connection.fetchval("SELECT max(lease_expires_at) FROM notifyqueue.notifications")


async def renewed(notifications: Notifications, before: object) -> bool:
    return await renewals(notifications) != before


async def sent(notifications: Notifications, count: int) -> bool:
    return await notifications.statuses() == {"SENT": count}
