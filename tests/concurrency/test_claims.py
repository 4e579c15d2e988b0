"""Claims: whoever asks at once gets what nobody else has, never more than asked, in the order of urgency."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest

from services.worker.claim import Claim
from services.worker.lane import LOW_FIRST, URGENT_FIRST
from services.worker.outcome import Sent
from services.worker.store import CLAIM_LIMITS, Record, Store
from shared.database import Database
from tests.conftest import login
from tests.notifications import Notifications

CLAIMERS = 16
NOW = timedelta()


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with Database(login(database_url, "worker"), name="test", size=CLAIMERS) as database:
        yield Store(database)


async def claim(
    store: Store, limit: int, *, classes: Sequence[int] = URGENT_FIRST, due_for: timedelta = NOW
) -> list[Claim]:
    return await store.claim_due(
        "EMAIL",
        limit=limit,
        classes=classes,
        due_for=due_for,
        token=uuid4(),
        worker_id=uuid4(),
        lease=timedelta(minutes=1),
        take_suspect=True,
    )


async def drain(store: Store, limit: int) -> list[UUID]:
    """Claims and sends until nothing is left."""
    taken: list[UUID] = []
    while claims := await claim(store, limit):
        assert len(claims) <= limit
        taken += [held.notification_id for held in claims]
        assert len(await store.mark_sent([Record(held, Sent()) for held in claims])) == len(claims)
    return taken


async def fill(notifications: Notifications, count: int) -> None:
    """Never analysed, as a burst leaves it."""
    await notifications.connection.execute(
        "INSERT INTO notifyqueue.notifications (tenant_id, idempotency_key, fingerprint, channel, address, priority,"
        " max_attempts, due_at, next_attempt_at)"
        " SELECT 'default', n::text, '', 'EMAIL', 'a@example.com', 1 + n % 3, 5, now(), now()"
        " FROM generate_series(1, $1) AS n",
        count,
    )


@pytest.mark.parametrize("limit", [1, 8, 64])
async def test_sixteen_claimers_get_disjoint_claims_and_everything_once(
    store: Store, notifications: Notifications, limit: int
) -> None:
    await fill(notifications, 1_000)
    taken = await asyncio.gather(*(drain(store, limit) for _ in range(CLAIMERS)))
    ids = [id_ for part in taken for id_ in part]
    assert len(ids) == len(set(ids)) == 1_000
    assert await notifications.statuses() == {"SENT": 1_000}


async def test_the_naive_read_then_update_hands_one_notification_to_several(
    notifications: Notifications, database_url: str
) -> None:
    """The control: what the lock and SKIP LOCKED are for."""
    id_ = await notifications.insert("wanted")
    connections = [await asyncpg.connect(database_url) for _ in range(4)]
    everybody_read = asyncio.Barrier(4)

    async def take(connection: "asyncpg.Connection[asyncpg.Record]") -> bool:
        found = await connection.fetchval("SELECT id FROM notifyqueue.notifications WHERE status = 'PENDING'")
        await everybody_read.wait()
        await connection.execute(
            "UPDATE notifyqueue.notifications SET status = 'PROCESSING', claim_token = gen_random_uuid(),"
            " worker_id = gen_random_uuid(), lease_expires_at = now() WHERE id = $1",
            found,
        )
        return bool(found == id_)

    assert sum(await asyncio.gather(*map(take, connections))) > 1
    await asyncio.gather(*(connection.close() for connection in connections))


@pytest.mark.parametrize("limit", CLAIM_LIMITS)
async def test_a_claim_takes_what_was_asked_for_and_no_more(
    store: Store, notifications: Notifications, limit: int
) -> None:
    await fill(notifications, 600)
    assert len(await claim(store, limit)) == limit


async def test_high_goes_before_low_and_in_a_class_the_oldest_first(store: Store, notifications: Notifications) -> None:
    wanted = [
        await notifications.insert(f"{priority}-{age}", priority=priority, due_in=timedelta(seconds=-age))
        for priority in (3, 2, 1)
        for age in (3, 2, 1)
    ]
    assert [(await claim(store, 1))[0].notification_id for _ in wanted] == wanted


async def test_a_claim_from_the_bottom_takes_only_what_has_waited_long(
    store: Store, notifications: Notifications
) -> None:
    await notifications.insert("high", priority=3, due_in=timedelta(minutes=-10))
    await notifications.insert("low, fresh", priority=1)
    old = await notifications.insert("low, old", priority=1, due_in=timedelta(minutes=-6))
    (taken,) = await claim(store, 1, classes=LOW_FIRST, due_for=timedelta(minutes=5))
    assert taken.notification_id == old


async def test_what_is_not_due_is_not_taken(store: Store, notifications: Notifications) -> None:
    await notifications.insert("later", due_in=timedelta(hours=1))
    assert not await claim(store, 64)
    seconds = await store.read_next_due("EMAIL", suspects=True)
    assert seconds is not None
    assert 3_590 < seconds <= 3_600
    assert await store.read_next_due("SMS", suspects=True) is None


async def test_another_channel_is_not_touched(store: Store, notifications: Notifications) -> None:
    await notifications.insert("sms", channel="SMS")
    assert not await claim(store, 64)


async def test_sixteen_recorders_that_meet_do_not_deadlock(store: Store, notifications: Notifications) -> None:
    await fill(notifications, 500)
    claims = await claim(store, 512)
    records = [Record(held, Sent()) for held in claims]
    ours = await asyncio.gather(*(store.mark_sent(records if n % 2 else records[::-1]) for n in range(CLAIMERS)))
    assert sum(len(part) for part in ours) == 500
    assert await notifications.statuses() == {"SENT": 500}
