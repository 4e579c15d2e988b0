"""What retention removes, what it leaves, and what it does beside others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
import structlog

from services.worker.outcome import Sent
from services.worker.retention import SOON, BatchSize, Retention
from services.worker.retention_store import RetentionStore
from services.worker.store import Record, Store
from shared.database import Database
from tests.conftest import login
from tests.endings import Endings
from tests.integration.conftest import StartWorker
from tests.notifications import Notifications
from tests.providers import ScriptedProvider
from tests.waiting import eventually

on_every_server = pytest.mark.parametrize("database_url", ["postgres", "postgres_15"], indirect=True)

DAY = timedelta(days=1)
NOTHING: dict[str, int] = {}
KEPT = {"notifications": 1, "notification_contents": 1, "notification_history": 1}
REPORTED = {"webhook_events": 1, "webhook_deliveries": 1, "webhook_attempts": 1}
ALL = KEPT | REPORTED


def without_content(rows: dict[str, int]) -> dict[str, int]:
    return {table: count for table, count in rows.items() if table != "notification_contents"}


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with Database(login(database_url, "worker"), name="test") as database:
        yield database


@pytest.fixture
def store(database: Database) -> RetentionStore:
    return RetentionStore(database)


@pytest.fixture
def endings(notifications: Notifications) -> Endings:
    return Endings(notifications.connection)


def retention(store: RetentionStore, **settings: Any) -> Retention:
    return Retention(store, **{"retention": 30 * DAY, "content_retention": 7 * DAY} | settings)


async def sweep(retention: Retention) -> None:
    """Until nothing more is old enough."""
    while not await retention.sweep():
        pass


async def begin_again(endings: Endings) -> None:
    """The next walk but one is a day later."""
    await endings.connection.execute("UPDATE notifyqueue.retention_marks SET begun_at = now() - interval '25 hours'")


@dataclass(frozen=True)
class End:
    status: str
    days: float
    deliveries: tuple[str, ...] = ("DELIVERED",)
    fanned_out: bool = True


def case(*ends: End | None, expires: bool = False, left: dict[str, int]) -> tuple[Any, ...]:
    """What is left of a notification that ended so; one that ended twice was redriven, and None is PENDING since."""
    return ends, expires, left


FINAL = ("SENT", "CANCELLED", "EXPIRED", "SUPPRESSED")
DEAD = ("FAILED", "DEAD_LETTERED")
A_MINUTE = 2 / 24 / 60

CASES = {
    **{f"{status}, long ago": case(End(status, 31), left=NOTHING) for status in FINAL},
    **{f"{status}, a while ago": case(End(status, 29), left=without_content(ALL)) for status in FINAL},
    **{f"{status}, last week": case(End(status, 6), left=ALL) for status in FINAL},
    **{f"{status}, long ago": case(End(status, 31), left=KEPT) for status in DEAD},
    **{f"{status}, a while ago": case(End(status, 29), left=ALL) for status in DEAD},
    **{
        f"{status}, expiring": case(End(status, A_MINUTE), expires=True, left=without_content(ALL))
        for status in (*FINAL, *DEAD)
    },
    "dead, expiring, long ago": case(End("FAILED", 31), expires=True, left=without_content(KEPT)),
    "just ended, expiring": case(End("SENT", 0), expires=True, left=ALL),
    "just ended": case(End("SENT", 0), left=ALL),
    "never ended": case(None, left=KEPT),
    "never ended, expiring": case(None, expires=True, left=KEPT),
    "nobody wanted to know": case(End("SENT", 31, deliveries=()), left=NOTHING),
    "given up": case(End("SENT", 31, deliveries=("GIVEN_UP", "DELIVERED")), left=NOTHING),
    "being delivered": case(
        End("SENT", 31, deliveries=("DELIVERED", "OPEN")),
        left=without_content(KEPT) | {"webhook_events": 1, "webhook_deliveries": 2, "webhook_attempts": 2},
    ),
    "dead, being delivered": case(
        End("FAILED", 31, deliveries=("DELIVERED", "OPEN")),
        left=KEPT | {"webhook_events": 1, "webhook_deliveries": 2, "webhook_attempts": 2},
    ),
    "not fanned out": case(End("SENT", 31, fanned_out=False), left=without_content(KEPT) | {"webhook_events": 1}),
    "dead, not fanned out": case(End("FAILED", 31, fanned_out=False), left=KEPT | {"webhook_events": 1}),
    "redriven": case(End("FAILED", 40), None, left=KEPT),
    "redriven, expiring": case(End("FAILED", 8), None, expires=True, left=ALL),
    "redriven and sent, long ago": case(End("DEAD_LETTERED", 40), End("SENT", 31), left=NOTHING),
    "redriven and sent, a while ago": case(
        End("FAILED", 40),
        End("SENT", 10),
        left=without_content(KEPT) | dict.fromkeys(REPORTED, 2),
    ),
    "redriven and sent, last week": case(End("FAILED", 40), End("SENT", 6), left=KEPT | dict.fromkeys(REPORTED, 2)),
    "redriven and sent, the first end still being delivered": case(
        End("FAILED", 40, deliveries=("OPEN",)),
        End("SENT", 31),
        left=without_content(KEPT) | dict.fromkeys(REPORTED, 2),
    ),
    "redriven and dead again, long ago": case(End("FAILED", 40), End("FAILED", 31), left=KEPT),
    "redriven and dead again, a while ago": case(End("FAILED", 40), End("FAILED", 10), left=ALL),
}


@on_every_server
async def test_what_goes_and_what_stays(endings: Endings, store: RetentionStore) -> None:
    ids: dict[str, UUID] = {}
    for name, (ends, expires, _) in CASES.items():
        ids[name] = await endings.accept(name, 40 * DAY, expires=expires)
        for number, end in enumerate(ends):
            if number:
                await endings.redrive(ids[name])
            if end:
                await endings.end(
                    ids[name], end.status, end.days * DAY, deliveries=end.deliveries, fanned_out=end.fanned_out
                )
    await sweep(retention(store))
    assert {name: await endings.left(id_) for name, id_ in ids.items()} == {
        name: left for name, (_, _, left) in CASES.items()
    }
    assert await endings.orphans() == {}


async def test_a_worker_does_it_by_itself(endings: Endings, start_worker: StartWorker, database_url: str) -> None:
    id_ = await endings.ended("old", ago=31 * DAY)
    await start_worker(database_url, ScriptedProvider())

    async def gone() -> bool:
        return await endings.left(id_) == NOTHING

    await eventually(gone)


async def test_zero_keeps_for_ever(endings: Endings, store: RetentionStore) -> None:
    plain = await endings.ended("plain", ago=400 * DAY)
    expiring = await endings.ended("expiring", ago=400 * DAY, expires=True)
    await sweep(retention(store, retention=timedelta(), content_retention=timedelta()))
    assert await endings.left(plain) == ALL
    assert await endings.left(expiring) == without_content(ALL)
    await sweep(retention(store, content_retention=timedelta()))
    assert await endings.left(plain) == NOTHING


async def test_workers_that_died_a_day_ago_are_forgotten(endings: Endings, store: RetentionStore) -> None:
    dead, alive = uuid4(), uuid4()
    await endings.connection.executemany(
        "INSERT INTO notifyqueue.workers "
        "(id, phase, heartbeat_at, channels, concurrency, in_flight, sent, unsent) "
        "VALUES ($1, 'RUNNING', now() - $2::interval, '{}', '{}', '{}', '{}', '{}')",
        [(dead, 1.1 * DAY), (alive, 0.9 * DAY)],
    )
    await sweep(retention(store))
    assert [row["id"] for row in await endings.connection.fetch("SELECT id FROM notifyqueue.workers")] == [alive]


async def test_the_history_of_lanes_goes_after_a_while(endings: Endings, store: RetentionStore) -> None:
    await endings.connection.execute(
        "INSERT INTO notifyqueue.lane_history (channel, kind, happened_at, note) "
        "SELECT channel, 'LANE_PAUSED', now() - interval '1 day' * days, days::text "
        "FROM notifyqueue.lanes CROSS JOIN generate_series(1, 60) AS days"
    )
    await sweep(retention(store))
    rows = await endings.connection.fetch(
        "SELECT count(*), max(note::int) AS oldest FROM notifyqueue.lane_history GROUP BY channel"
    )
    assert [tuple(row) for row in rows] == [(29, 29)] * 3


async def test_why_a_lane_stands_still_is_remembered_as_long_as_it_does(
    endings: Endings, store: RetentionStore
) -> None:
    for lane in ("EMAIL", "SMS"):
        await endings.connection.execute(
            "UPDATE notifyqueue.lanes SET paused_at = now() - interval '40 days', paused_by = 'key:1', "
            "pause_reason = 'r', opening = 1, opened_at = now() - interval '41 days', cause = '503', "
            "probe_at = now(), probe_delay = '5 s' WHERE channel = $1",
            lane,
        )
    await endings.connection.execute(
        "INSERT INTO notifyqueue.lane_history (channel, kind, happened_at) "
        "SELECT l.channel, e.kind, now() - interval '1 day' * e.days FROM notifyqueue.lanes AS l, "
        "(VALUES ('LANE_PAUSED', 50), ('LANE_RESUMED', 49), ('BREAKER_OPENED', 41), ('LANE_PAUSED', 40)) "
        "AS e (kind, days)"
    )
    await endings.connection.execute(
        "UPDATE notifyqueue.lanes SET paused_at = NULL, paused_by = NULL, pause_reason = NULL, opened_at = NULL, "
        "cause = NULL, probe_at = NULL, probe_delay = NULL WHERE channel = 'SMS'"
    )
    await sweep(retention(store))
    rows = await endings.connection.fetch("SELECT channel, kind FROM notifyqueue.lane_history ORDER BY id")
    assert [tuple(row) for row in rows] == [("EMAIL", "BREAKER_OPENED"), ("EMAIL", "LANE_PAUSED")]


@pytest.mark.parametrize("content_retention", [7 * DAY, timedelta()])
async def test_content_that_somebody_held_is_erased_when_the_last_sweep_begins_again(
    endings: Endings, store: RetentionStore, database_url: str, content_retention: timedelta
) -> None:
    failed = await endings.accept("failed", 20 * DAY, expires=True)
    await endings.end(failed, "FAILED", 19 * DAY)
    other = await asyncpg.connect(database_url)
    try:
        async with other.transaction():
            await other.execute("SELECT FROM notifyqueue.notifications FOR UPDATE")
            await sweep(retention(store, content_retention=content_retention))
    finally:
        await other.close()
    assert await endings.left(failed) == ALL
    await begin_again(endings)
    for _ in range(3):
        await sweep(retention(store, content_retention=content_retention))
    assert await endings.left(failed) == without_content(ALL)


async def test_a_delivery_that_ends_late_lets_its_notification_go_and_holds_up_nobody(
    endings: Endings, store: RetentionStore
) -> None:
    late = await endings.accept("late", 40 * DAY)
    event = await endings.end(late, "SENT", 40 * DAY, deliveries=("OPEN",))
    other = await endings.ended("other", ago=35 * DAY)
    await sweep(retention(store))
    assert await endings.left(other) == NOTHING
    await endings.connection.execute(
        "UPDATE notifyqueue.webhook_deliveries SET delivered_at = now() WHERE event_id = $1", event
    )
    await sweep(retention(store))
    assert await endings.left(late) == without_content(ALL)  # the mark is past it
    await begin_again(endings)
    await sweep(retention(store))
    await sweep(retention(store))
    assert await endings.left(late) == NOTHING


async def test_what_is_committed_behind_the_mark_is_met_again(
    endings: Endings, store: RetentionStore, database_url: str
) -> None:
    """First by the sweep for all contents, and then by the one for notifications."""
    last_week = await endings.accept("last week", 40 * DAY, expires=True)
    last_month = await endings.accept("last month", 40 * DAY)
    async with AsyncExitStack() as stack:
        other = await asyncpg.connect(database_url)
        stack.push_async_callback(other.close)
        late = Endings(other)
        late._events, late._deliveries = endings._events, endings._deliveries
        async with other.transaction():
            await late.end(last_week, "FAILED", 6.9 * DAY)
            await late.end(last_month, "SENT", 40 * DAY)
            passed = await endings.ended("ended meanwhile", ago=39 * DAY)
            await endings.ended("expired meanwhile", ago=6.8 * DAY, expires=True)
            await sweep(retention(store))
    assert await endings.left(passed) == NOTHING
    await sweep(retention(store))
    assert [await endings.left(id_) for id_ in (last_week, last_month)] == [ALL, ALL]
    await sweep(retention(store, content_retention=6.85 * DAY))  # a little later
    assert await endings.left(last_week) == without_content(ALL)
    await begin_again(endings)
    await sweep(retention(store))
    await sweep(retention(store))
    assert await endings.left(last_month) == NOTHING


async def test_it_waits_for_no_row_that_somebody_holds(
    endings: Endings, store: RetentionStore, database_url: str
) -> None:
    held, free = await endings.ended("held", ago=40 * DAY), await endings.ended("free", ago=39 * DAY)
    other = await asyncpg.connect(database_url)
    async with other.transaction():
        await other.execute("SELECT FROM notifyqueue.notifications WHERE id = $1 FOR UPDATE", held)
        await sweep(retention(store))
        assert await endings.left(free) == NOTHING
    await other.close()
    assert await endings.left(held) == without_content(ALL)
    await begin_again(endings)
    await sweep(retention(store))
    await sweep(retention(store))
    assert await endings.left(held) == NOTHING


async def test_a_delivery_that_is_opened_again_keeps_all_it_belongs_to(endings: Endings, store: RetentionStore) -> None:
    """After it was found that all may go: each statement looks anew."""
    id_ = await endings.accept("replayed", 40 * DAY)
    event = await endings.end(id_, "SENT", 40 * DAY, deliveries=("DELIVERED",))
    async with store.batch() as batch:
        _, found = await batch.find_removable(UUID(int=0), 30 * DAY, limit=10)
        assert list(found.notification_ids) == [id_]
        await endings.connection.execute(
            "UPDATE notifyqueue.webhook_deliveries SET delivered_at = NULL WHERE event_id = $1", event
        )
        await batch.remove(found)
    assert await endings.left(id_) == ALL


async def test_a_batch_that_was_broken_off_is_done_by_the_next(
    endings: Endings, store: RetentionStore, database_url: str
) -> None:
    await endings.fill(100, 40 * DAY)
    other = await asyncpg.connect(database_url)
    async with other.transaction():
        await other.execute("LOCK TABLE notifyqueue.notification_history")
        turn = asyncio.create_task(retention(store, content_retention=timedelta()).sweep())
        await eventually(lambda: waits_for_a_lock(endings))
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
    await other.close()
    assert await counts(endings) == {"notifications": 100, "webhook_events": 100, "webhook_deliveries": 100}
    await sweep(retention(store))
    assert await counts(endings) == {"notifications": 0, "webhook_events": 0, "webhook_deliveries": 0}


async def test_a_batch_goes_on_where_another_worker_stopped(
    endings: Endings, store: RetentionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BatchSize, "MOST", 40)
    await endings.fill(100, 40 * DAY, "FAILED")
    for worker in range(2):
        assert await retention(store).sweep() == 0
        assert (await counts(endings))["webhook_events"] == 100 - 40 * (worker + 1)
    assert await retention(store).sweep() > 0
    assert await counts(endings) == {"notifications": 100, "webhook_events": 0, "webhook_deliveries": 0}


@on_every_server
async def test_many_workers_at_once_remove_each_row_once(
    endings: Endings, database_url: str, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BatchSize, "MOST", 128)
    await endings.fill(5_000, 40 * DAY)
    workers = [
        retention(RetentionStore(await stack.enter_async_context(Database(login(database_url, "worker"), name="test"))))
        for _ in range(8)
    ]

    def removed(table: str) -> int:
        return sum(line.get(table, 0) for line in logged if line["event"] == "retention.removed")

    async def work(worker: Retention) -> None:
        while removed("notifications") < 5_000:
            await worker.sweep()

    with structlog.testing.capture_logs() as logged:
        async with asyncio.timeout(60):
            await asyncio.gather(*map(work, workers))
    for table in ("notifications", "contents", "history", "events", "deliveries", "attempts"):
        assert removed(table) == 5_000, table
    assert await counts(endings) == {"notifications": 0, "webhook_events": 0, "webhook_deliveries": 0}
    assert await endings.orphans() == {}
    assert await deadlocks(endings) == 0


@on_every_server
async def test_nobody_waits_for_a_batch(
    endings: Endings, notifications: Notifications, store: RetentionStore, database_url: str
) -> None:
    """Its locks are held while others accept, claim, record, fan out: a statement that waited would not come back."""
    await endings.fill(500, 40 * DAY)
    await sweep(retention(store, retention=timedelta()))  # of contents alone
    async with AsyncExitStack() as stack:
        worker = Store(await stack.enter_async_context(Database(login(database_url, "worker"), name="test")))
        batch = await stack.enter_async_context(store.batch())
        assert await batch.take_mark("NOTIFICATIONS")
        _, found = await batch.find_removable(UUID(int=0), 30 * DAY, limit=1_000)
        assert (await batch.remove(found)).notifications == 500
        async with asyncio.timeout(10):
            ids = await notifications.insert_many(20)
            claims = await claim(worker)
            assert {held.notification_id for held in claims} == set(ids)
            assert await worker.mark_sent([Record(held, Sent()) for held in claims]) == set(ids)
            assert await retention(store).sweep() > SOON  # another worker goes away, without waiting
            async with store.batch() as other:
                assert await other.take_mark("NOTIFICATIONS") is None
            await endings.end(await endings.accept("reported", DAY), "SENT", DAY)


async def test_what_is_sent_meanwhile_is_recorded(
    endings: Endings, notifications: Notifications, store: RetentionStore, database_url: str, stack: AsyncExitStack
) -> None:
    await endings.fill(5_000, 40 * DAY)
    fresh = await notifications.insert_many(600)
    worker = Store(await stack.enter_async_context(Database(login(database_url, "worker"), name="test")))
    sent: set[UUID] = set()

    async def deliver() -> None:
        while claims := await claim(worker, limit=16):
            recorded = await worker.mark_sent([Record(held, Sent()) for held in claims])
            assert recorded == {held.notification_id for held in claims}
            sent.update(recorded)

    await asyncio.gather(deliver(), deliver(), sweep(retention(store)), sweep(retention(store)))
    await sweep(retention(store))
    assert sent == set(fresh)
    assert (await counts(endings))["notifications"] == 600
    assert await deadlocks(endings) == 0


@pytest.mark.parametrize("limit", ["lock_timeout", "statement_timeout"])
async def test_after_one_that_took_too_long_a_batch_is_half_as_large(
    endings: Endings, database_url: str, limit: str, monkeypatch: pytest.MonkeyPatch, stack: AsyncExitStack
) -> None:
    monkeypatch.setattr(BatchSize, "MOST", 64)
    await endings.fill(100, 40 * DAY)
    url = f"{login(database_url, 'worker')}?{limit}=100"
    worker = retention(RetentionStore(await stack.enter_async_context(Database(url, name="test"))))
    async with endings.connection.transaction():
        await endings.connection.execute("LOCK TABLE notifyqueue.webhook_deliveries")
        assert await worker.sweep() == SOON
    await worker.sweep()
    assert (await counts(endings))["notifications"] == 100 - 32


async def claim(store: Store, *, limit: int = 64) -> Any:
    return await store.claim_due(
        "EMAIL",
        limit=limit,
        classes=(3, 2, 1),
        due_for=timedelta(),
        token=uuid4(),
        worker_id=uuid4(),
        lease=timedelta(minutes=1),
        take_suspect=True,
    )


async def counts(endings: Endings) -> dict[str, int]:
    return {
        table: await endings.connection.fetchval(f"SELECT count(*) FROM notifyqueue.{table}")
        for table in ("notifications", "webhook_events", "webhook_deliveries")
    }


async def waits_for_a_lock(endings: Endings) -> bool:
    found = await endings.connection.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    return bool(found)


async def deadlocks(endings: Endings) -> int:
    return int(
        await endings.connection.fetchval("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    )
