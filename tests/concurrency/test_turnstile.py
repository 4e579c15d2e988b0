"""Recipients' limits under real races: whoever decides at once, no window holds more than its limit."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from services.worker.admission import Admission, Entry
from services.worker.claim import Claim
from services.worker.gates import BEFORE_ALL, Gates
from services.worker.outcome import Sent
from services.worker.shared_lane import LaneFacts, SharedLane
from services.worker.store import Record, Store
from services.worker.turnstile_store import TurnstileStore, sql
from shared.clock import tick
from shared.database import Database
from tests.conftest import login
from tests.notifications import Notifications
from tests.recipients import gates, limit, most_claims, most_in_a_window, waiting

WORKERS = 10
HOUR = timedelta(hours=1)
LEASE = timedelta(minutes=1)

on_every_server = pytest.mark.parametrize("database_url", ["postgres", "postgres_15"], indirect=True)


class Racer:
    """A worker without a provider: it claims, asks for admission, and notes when it would have called."""

    def __init__(self, database: Database, channel: str = "EMAIL") -> None:
        self.id = uuid4()
        self.database = database
        self.channel = channel
        self.store = Store(database)
        self.turnstile = TurnstileStore(database)
        self.admission = Admission(self.turnstile, lease=LEASE, on_wait=lambda *_: None)
        lane = SharedLane(channel, 64)
        lane.apply(LaneFacts(channel, paused=False, opening=0, open=False, probe_in=0, held_for=0))
        self.gates = Gates(self.turnstile, lane, poll_interval=1, on_open=lambda _: None)
        self.calls: list[tuple[float, UUID]] = []

    async def claim(self, count: int = 8) -> list[Claim]:
        return await self.store.claim_due(
            self.channel,
            limit=count,
            classes=(3, 2, 1),
            due_for=timedelta(),
            token=uuid4(),
            worker_id=self.id,
            lease=LEASE,
            take_suspect=True,
        )

    async def admit(self, claim: Claim) -> bool:
        """Whether it starts; asks again as a delivery does."""
        while True:
            ticket = await self.admission.ask(claim)
            if ticket.entry is Entry.WAITS:
                return False
            assert ticket.entry is not Entry.LOST
            if ticket.entry is Entry.STARTS and tick() <= ticket.good_until:
                self.calls.append((time.monotonic(), claim.notification_id))
                return True

    async def turn(self, count: int = 8) -> int:
        """Claims, admits, sends. Answers how many started."""
        claims = await self.claim(count)
        starting = await asyncio.gather(*map(self.admit, claims))
        started = [Record(claim, Sent()) for claim, starts in zip(claims, starting, strict=True) if starts]
        await self.store.mark_sent(started)
        return len(started)

    async def drain(self, done: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        while not await done():
            await self.turn()
            await self.gates.open(64)


@pytest.fixture
async def racers(database_url: str) -> AsyncIterator[list[Racer]]:
    async with AsyncExitStack() as stack:
        yield [
            Racer(
                await stack.enter_async_context(Database(login(database_url, "worker"), name=f"racer {number}", size=2))
            )
            for number in range(WORKERS)
        ]


async def fill(
    notifications: Notifications,
    count: int,
    address: str = "hot@example.com",
    channel: str = "EMAIL",
    subscriber: str | None = None,
) -> None:
    await notifications.connection.execute(
        "INSERT INTO notifyqueue.notifications (tenant_id, idempotency_key, fingerprint, channel, address, priority,"
        " max_attempts, due_at, next_attempt_at, subscriber)"
        " SELECT 'default', $3 || $2 || n::text, '', $3, $2, 2, 5, now(), now(), $4 FROM generate_series(1, $1) AS n",
        count,
        address,
        channel,
        subscriber,
    )


async def reserved(notifications: Notifications) -> int:
    count: int = await notifications.connection.fetchval("SELECT count(*) FROM notifyqueue.recipient_reservations")
    return count


@on_every_server
async def test_of_twenty_at_once_with_a_limit_of_three_three_start(
    racers: list[Racer], notifications: Notifications
) -> None:
    await limit(notifications, 3, HOUR)
    await fill(notifications, 20)
    started = await asyncio.gather(*(racer.turn(2) for racer in racers))
    assert sum(started) == await reserved(notifications) == 3
    assert await waiting(notifications) == 17
    assert await gates(notifications) == 1
    assert await notifications.statuses() == {"SENT": 3, "PENDING": 17}


@on_every_server
async def test_ten_workers_over_forty_start_no_more_than_the_limit_in_any_window(
    racers: list[Racer], notifications: Notifications, database_url: str
) -> None:
    window = timedelta(seconds=1)
    await limit(notifications, 15, window)
    await fill(notifications, 40)
    looking = await asyncpg.connect(database_url)
    lock = asyncio.Lock()

    async def all_sent() -> bool:
        async with lock:
            return not await looking.fetchval(
                "SELECT EXISTS (SELECT FROM notifyqueue.notifications WHERE status <> 'SENT')"
            )

    async with asyncio.timeout(30):
        await asyncio.gather(*(racer.drain(all_sent) for racer in racers))
    await looking.close()
    calls = [call for racer in racers for call in racer.calls]
    assert len({id_ for _, id_ in calls}) == len(calls) == 40
    assert most_in_a_window(calls, window) <= 15
    assert await gates(notifications) == 0
    deadlocks = await notifications.connection.fetchval(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    )
    assert deadlocks == 0


async def test_without_the_lock_more_start_than_may(
    racers: list[Racer], notifications: Notifications, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: what the recipient's lock is for."""
    unlocked = sql["try_recipients"].replace("pg_try_advisory_xact_lock", "pg_try_advisory_xact_lock_shared")
    assert unlocked != sql["try_recipients"]
    monkeypatch.setitem(sql._texts, "try_recipients", unlocked)
    await limit(notifications, 3, HOUR)
    most = 0
    for number in range(20):
        await fill(notifications, 20, f"hot-{number}@example.com")
        most = max(most, sum(await asyncio.gather(*(racer.turn(2) for racer in racers))))
        if most > 3:
            break
    assert most > 3


async def test_two_workers_that_open_one_gate_call_up_no_more_than_is_free(
    racers: list[Racer], notifications: Notifications
) -> None:
    await limit(notifications, 3, HOUR)
    await fill(notifications, 20)
    await racers[0].turn(32)
    await notifications.connection.execute(
        "UPDATE notifyqueue.recipient_reservations SET started_at = started_at - interval '2 hours'"
    )
    await notifications.connection.execute("UPDATE notifyqueue.recipient_gates SET opens_at = now()")
    called = await asyncio.gather(*(racer.gates.open(64) for racer in racers))
    assert sum(called) == 3
    assert sum(await asyncio.gather(*(racer.turn(8) for racer in racers))) == 3
    assert await most_claims(notifications) == 2


async def test_gates_and_claims_of_many_recipients_that_meet_do_not_deadlock(
    racers: list[Racer], notifications: Notifications
) -> None:
    await limit(notifications, 1, timedelta(seconds=0.05))
    for number in range(20):
        await fill(notifications, 10, f"warm-{number}@example.com")

    async def race(racer: Racer) -> None:
        for _ in range(10):
            await racer.turn(32)
            await racer.gates.open(8)
            await racer.turnstile.mend_gates(BEFORE_ALL)

    await asyncio.gather(*map(race, racers))
    deadlocks = await notifications.connection.fetchval(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    )
    assert deadlocks == 0
    orphans = await notifications.connection.fetchval(
        "SELECT count(*) FROM notifyqueue.notifications AS n WHERE n.waiting AND NOT EXISTS (SELECT FROM"
        " notifyqueue.recipient_gates AS g WHERE g.tenant_id = n.tenant_id AND g.limit_key = n.limit_key)"
    )
    assert orphans == 0


# A subscriber's lanes.


async def serve(notifications: Notifications, *channels: str) -> None:
    await notifications.connection.execute(
        "INSERT INTO notifyqueue.workers (id, phase, channels, concurrency, in_flight, sent, unsent)"
        " SELECT gen_random_uuid(), 'RUNNING', ARRAY[c], '{1}', '{0}', '{0}', '{0}' FROM unnest($1::text[]) AS c",
        channels,
    )


async def test_over_all_lanes_of_a_subscriber_no_window_has_more_starts_than_its_limit(
    racers: list[Racer], notifications: Notifications
) -> None:
    window = timedelta(seconds=0.5)
    await serve(notifications, "EMAIL", "SMS")
    await limit(notifications, 4, window)
    for channel in ("EMAIL", "SMS"):
        await fill(notifications, 8, channel=channel, subscriber="ada")
    racers = [Racer(racer.database, channel) for racer, channel in zip(racers, ("EMAIL", "SMS") * 5, strict=True)]

    async def done() -> bool:
        return sum(len(racer.calls) for racer in racers) == 16

    await asyncio.gather(*(racer.drain(done) for racer in racers))
    assert await notifications.statuses() == {"SENT": 16}
    calls = [call for racer in racers for call in racer.calls]
    assert most_in_a_window(calls, window) == 4
