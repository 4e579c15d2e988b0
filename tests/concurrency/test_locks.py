"""What each lock is for: one is held, and whoever comes meanwhile is looked at. Without luck: nothing here races."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import grpc.aio
import pytest

from services.worker.claim import Claim, Recipient
from services.worker.outcome import Sent
from services.worker.store import Record, Store, WorkerStore
from services.worker.turnstile import Window
from services.worker.turnstile_store import Turn
from shared.database import Database
from tests.concurrency.test_idempotency import schedule, start
from tests.concurrency.test_turnstile import Racer, fill, racers
from tests.conftest import login
from tests.notifications import Notifications
from tests.recipients import limit
from tests.waiting import eventually

__all__ = ["racers"]

CLAIM: dict[str, Any] = {
    "classes": [3, 2, 1],
    "due_for": timedelta(),
    "lease": timedelta(minutes=1),
    "take_suspect": True,
}


async def claim(store: Store, count: int) -> list[Claim]:
    return await store.claim_due("EMAIL", limit=count, token=uuid4(), worker_id=uuid4(), **CLAIM)


def ids(claims: list[Claim]) -> set[UUID]:
    return {held.notification_id for held in claims}


async def waiters(notifications: Notifications) -> int:
    found: int = await notifications.connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted")
    return found


async def test_a_claim_takes_what_no_other_is_taking_and_waits_for_nobody(
    database_url: str, notifications: Notifications
) -> None:
    all_ = set(await notifications.insert_many(8))
    suspects = {await notifications.insert(f"suspect {number}", expiries=2) for number in range(2)}
    async with (
        Database(login(database_url, "worker"), name="test") as database,
        WorkerStore(database).transaction() as under_way,
    ):
        first = ids(await claim(under_way, 4))
        second = ids(await claim(WorkerStore(database), 8))
    assert (len(first), len(first & suspects), len(second & suspects)) == (4, 1, 1)
    assert not first & second
    assert first | second == all_ | suspects


async def test_what_has_no_attempt_left_stops_nobody_who_is_behind_it(
    database_url: str, notifications: Notifications
) -> None:
    """A constraint keeps it from being PENDING at all; here it is taken away."""
    await notifications.connection.execute(
        "ALTER TABLE notifyqueue.notifications DROP CONSTRAINT pending_has_an_attempt_left"
    )
    hour_ago = timedelta(hours=-1)
    await notifications.insert("spent", attempt_count=5, due_in=hour_ago, priority=3)
    await notifications.insert("spent suspect", attempt_count=5, due_in=hour_ago, expiries=2)
    behind = {await notifications.insert("behind"), await notifications.insert("suspect", expiries=2)}
    async with Database(login(database_url, "worker"), name="test") as database:
        assert ids(await claim(Store(database), 2)) == behind


async def test_two_that_record_the_same_claims_in_opposite_orders_do_not_deadlock(
    database_url: str, notifications: Notifications
) -> None:
    """The row in the middle is held until each has come as far as it can."""
    _, middle, _ = await notifications.insert_many(3)
    other = await asyncpg.connect(database_url)
    # As the owner, whose locks may be waited for longer: a wait is no fault, a deadlock is.
    async with Database(database_url, name="test") as database:
        store = WorkerStore(database)
        records = [
            Record(held, Sent()) for held in sorted(await claim(store, 4), key=lambda held: held.notification_id)
        ]
        async with other.transaction():
            await other.execute("SELECT FROM notifyqueue.notifications WHERE id = $1 FOR UPDATE", middle)
            both = asyncio.gather(store.mark_sent(records), store.mark_sent(records[::-1]))
            await eventually(lambda: two_wait(notifications))
        assert sorted(map(len, await both)) == [0, 3]
    await other.close()


async def two_wait(notifications: Notifications) -> bool:
    return await waiters(notifications) == 2


async def test_who_waits_for_a_bucket_counts_what_was_taken_meanwhile(
    database_url: str, notifications: Notifications
) -> None:
    await notifications.connection.execute("UPDATE notifyqueue.tenants SET accept_rate = 0.01, accept_burst = 2")
    other = await asyncpg.connect(database_url)
    async with AsyncExitStack() as stack:
        scheduler = await start(stack, database_url)
        await scheduler.ScheduleNotification(schedule("the first"))
        async with other.transaction():
            await other.execute("UPDATE notifyqueue.accept_buckets SET empty_at = empty_at + interval '100 s'")
            call = asyncio.ensure_future(scheduler.ScheduleNotification(schedule("one too many")))
            await eventually(lambda: waiters(notifications))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert await notifications.statuses() == {"PENDING": 1}
    await other.close()


async def test_nobody_decides_about_a_recipient_while_another_does(
    racers: list[Racer], notifications: Notifications, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One has read how many slots are free. Before it takes them, another is refused, or takes them."""
    await limit(notifications, 3, timedelta(hours=1))
    await fill(notifications, 8)
    one, other = racers[:2]
    mine, theirs = await one.claim(4), await other.claim(4)
    try_recipients, read_windows = Turn.try_recipients, Turn.read_windows
    busy = asyncio.Event()
    meanwhile: list[asyncio.Task[int]] = []

    async def tell(turn: Turn, recipients: list[Recipient]) -> list[Recipient]:
        ours = await try_recipients(turn, recipients)
        if not ours:
            busy.set()
        return ours

    async def meet(turn: Turn, recipients: list[Recipient]) -> dict[Recipient, tuple[Window, timedelta]]:
        windows = await read_windows(turn, recipients)
        if not meanwhile:
            meanwhile.append(asyncio.create_task(admitted(other, theirs)))
            await eventually(lambda: busy.is_set() or meanwhile[0].done())
        return windows

    monkeypatch.setattr(Turn, "try_recipients", tell)
    monkeypatch.setattr(Turn, "read_windows", meet)
    assert await admitted(one, mine) + await meanwhile[0] == 3


async def admitted(racer: Racer, claims: list[Claim]) -> int:
    return sum(await asyncio.gather(*map(racer.admit, claims)))
