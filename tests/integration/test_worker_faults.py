"""A worker whose database answers late, or not at all: what it holds, gives back, and calls lost."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
import structlog

from services.worker.admission import Admission
from services.worker.claim import Claim, Held
from services.worker.gates import Gates
from services.worker.lane import Lane, LaneSettings, SuspectSlot
from services.worker.leases import Leases
from services.worker.outcome import Sent
from services.worker.recording import Fence, Recording, fences
from services.worker.shared_lane import LaneFacts, SharedLane
from services.worker.store import Record, WorkerStore
from services.worker.turnstile_store import TurnstileStore
from services.worker.worker import Worker
from shared.backoff import Backoff
from shared.batching import GroupCommit
from shared.clock import tick
from shared.database import Database
from shared.errors import DatabaseUnavailable
from tests.conftest import login
from tests.notifications import Notifications
from tests.providers import ScriptedProvider
from tests.waiting import eventually

LEASE = timedelta(minutes=1)
SETTINGS = LaneSettings(
    channel="EMAIL", concurrency=8, deadline=30.0, lease=LEASE, poll_interval=0.1, aging=timedelta(minutes=5)
)


class Faulty(WorkerStore):
    """Carries out what it is asked, and then does to the answer what a test wants."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.database = database
        self.after: dict[str, list[Callable[[], None]]] = {}
        self.calls: list[str] = []
        self.classes: list[Sequence[int]] = []

    def lose_answer(self, name: str) -> None:
        def lose() -> None:
            raise DatabaseUnavailable

        self.after.setdefault(name, []).append(lose)

    def _answered(self, name: str) -> None:
        self.calls.append(name)
        if queue := self.after.get(name):
            queue.pop(0)()

    async def claim_due(self, channel: str, **settings: Any) -> list[Claim]:
        claims = await super().claim_due(channel, **settings)
        self.classes.append(settings["classes"])
        if claims:
            self._answered("claim_due")
        return claims

    async def start_attempts(self, claims: Sequence[Held], lease: timedelta) -> set[UUID]:
        ours = await super().start_attempts(claims, lease)
        self._answered("start_attempts")
        return ours

    async def mark_sent(self, records: Sequence[Record[Sent]]) -> set[UUID]:
        ours = await super().mark_sent(records)
        self._answered("mark_sent")
        return ours


class Bench:
    """A lane with everything around it, and a store that fails on cue."""

    def __init__(self, store: Faulty, stack: AsyncExitStack) -> None:
        self.store = store
        self.provider = ScriptedProvider()
        self._stack = stack

    async def start(self) -> Worker:
        flights = asyncio.Semaphore(4)
        recording = await self._stack.enter_async_context(
            Recording(self.store, flights=flights, on_end=lambda: None, on_retry=lambda *_: None)
        )
        starts = await self._stack.enter_async_context(
            GroupCommit[Claim, Fence](self._fence, flights=flights, key=lambda claim: claim.notification_id)
        )
        turnstile = TurnstileStore(self.store.database)
        admission = await self._stack.enter_async_context(Admission(turnstile, lease=LEASE, on_wait=lambda *_: None))
        shared = SharedLane("EMAIL", SETTINGS.concurrency)
        shared.apply(LaneFacts("EMAIL", paused=False, opening=0, open=False, probe_in=0, held_for=0))
        lane = Lane(
            SETTINGS,
            self.store,
            self.provider,
            recording,
            starts,
            admission,
            Gates(turnstile, shared, poll_interval=60.0, on_open=lambda _: None),
            shared,
            worker_id=uuid4(),
            backoff=Backoff(timedelta(milliseconds=100), timedelta(seconds=1)),
            suspects=SuspectSlot(),
            listening=lambda: True,
        )
        return await self._stack.enter_async_context(Worker(uuid4(), {"EMAIL": lane}, shutdown_timeout=10))

    async def _fence(self, claims: Sequence[Claim]) -> list[Fence]:
        return await fences(self.store, claims, await self.store.start_attempts(claims, LEASE))

    async def on_the_wire(self) -> bool:
        return bool(self.provider.seen)


@pytest.fixture
async def bench(database_url: str) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(Database(login(database_url, "worker"), name="test"))
        yield Bench(Faulty(database), stack)


@pytest.fixture
async def other(database_url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


def leases(bench: Bench, worker: Worker) -> Leases:
    return Leases(bench.store, lease=LEASE, held=worker.renewable, on_lost=worker.lose)


async def lease_end(notifications: Notifications, id_: UUID) -> Any:
    return (await notifications.get(id_))["lease_expires_at"]


async def steal(notifications: Notifications, id_: UUID) -> None:
    """As a sweep and another worker do."""
    await notifications.connection.execute(
        "UPDATE notifyqueue.notifications SET claim_token = gen_random_uuid(), worker_id = gen_random_uuid(),"
        " attempt_count = attempt_count + 1 WHERE id = $1",
        id_,
    )


async def sent(notifications: Notifications, id_: UUID) -> bool:
    return await notifications.status(id_) == "SENT"


def events(logged: Sequence[Any]) -> list[str]:
    return [line["event"] for line in logged]


async def test_a_claim_whose_answer_was_lost_is_given_back_and_sent_on_its_first_attempt(
    notifications: Notifications, bench: Bench
) -> None:
    id_ = await notifications.insert("doubt")
    bench.store.lose_answer("claim_due")
    await bench.start()
    await eventually(lambda: sent(notifications, id_))
    assert bench.provider.requests == {id_: 1}
    assert (await notifications.get(id_))["attempt_count"] == 1


async def test_a_drain_gives_back_a_claim_whose_answer_was_lost(notifications: Notifications, bench: Bench) -> None:
    id_ = await notifications.insert("doubt")
    bench.store.lose_answer("claim_due")
    worker = await bench.start()

    async def claimed() -> bool:
        return "claim_due" in bench.store.calls

    await eventually(claimed)
    await worker.drain(10)
    assert worker.phase == "DRAINED"
    assert await notifications.status(id_) == "PENDING"
    assert not bench.provider.seen


async def test_a_record_whose_answer_was_lost_is_not_called_lost(notifications: Notifications, bench: Bench) -> None:
    id_ = await notifications.insert("recorded")
    bench.store.lose_answer("mark_sent")
    with structlog.testing.capture_logs() as logged:
        worker = await bench.start()
        await eventually(lambda: sent(notifications, id_))
        await worker.drain(10)
    assert "record.repeated" in events(logged)
    assert "job.claim_lost" not in events(logged)
    assert bench.store.calls.count("mark_sent") == 2
    assert worker.lanes["EMAIL"].totals.sent == 1


async def test_a_start_that_the_fence_could_not_answer_goes_back_uncounted(
    notifications: Notifications, bench: Bench
) -> None:
    id_ = await notifications.insert("unstarted", at_most_once=True)
    bench.store.after["start_attempts"] = [_raise_bug]
    await bench.start()

    async def back() -> bool:
        row = await notifications.get(id_)
        return bool(row["status"] == "PENDING" and row["next_attempt_at"] > row["due_at"])

    await eventually(back)
    row = await notifications.get(id_)
    assert (row["attempt_count"], row["expiries"], row["maybe_delivered"]) == (0, 0, False)
    assert not bench.provider.seen


def _raise_bug() -> None:
    raise RuntimeError("the fence fell over")


async def test_a_lease_is_renewed_while_a_call_runs(notifications: Notifications, bench: Bench) -> None:
    bench.provider.gate.clear()
    id_ = await notifications.insert("long")
    worker = await bench.start()
    await eventually(bench.on_the_wire)
    before = await lease_end(notifications, id_)
    await leases(bench, worker).renew()
    assert await lease_end(notifications, id_) > before
    bench.provider.gate.set()
    await eventually(lambda: sent(notifications, id_))


async def test_a_row_that_somebody_locks_holds_up_neither_its_neighbours_nor_their_leases(
    notifications: Notifications, bench: Bench, other: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    bench.provider.gate.clear()
    ids = await notifications.insert_many(8)
    worker = await bench.start()

    async def all_on_the_wire() -> bool:
        return len(bench.provider.seen) == 8

    await eventually(all_on_the_wire)
    async with other.transaction():
        await other.execute("SELECT id FROM notifyqueue.notifications WHERE id = $1 FOR UPDATE", ids[0])
        before = await lease_end(notifications, ids[1])
        await leases(bench, worker).renew()
        assert await lease_end(notifications, ids[1]) > before
        bench.provider.gate.set()

        async def others_sent() -> bool:
            return await notifications.statuses() == {"SENT": 7, "PROCESSING": 1}

        async def only_the_locked_is_held() -> bool:
            return [claim.notification_id for claim in worker.renewable()] == [ids[0]]

        await eventually(others_sent)
        await eventually(only_the_locked_is_held)
        assert worker.lanes["EMAIL"].totals.claims_lost == 0
    await eventually(lambda: sent(notifications, ids[0]))
    assert bench.provider.requests == dict.fromkeys(ids, 1)


async def test_a_claim_that_was_taken_over_is_called_lost_once(notifications: Notifications, bench: Bench) -> None:
    bench.provider.gate.clear()
    id_ = await notifications.insert("taken")
    worker = await bench.start()
    await eventually(bench.on_the_wire)
    await steal(notifications, id_)
    with structlog.testing.capture_logs() as logged:
        await leases(bench, worker).renew()
        bench.provider.gate.set()
        await worker.drain(10)
    assert events(logged).count("job.claim_lost") == 1
    assert worker.lanes["EMAIL"].totals.claims_lost == 1
    assert await notifications.status(id_) == "PROCESSING"
    assert not await notifications.events(id_)


async def test_a_worker_does_not_run_its_own_notification_twice(notifications: Notifications, bench: Bench) -> None:
    bench.provider.gate.clear()
    id_ = await notifications.insert("mine")
    await bench.start()
    await eventually(bench.on_the_wire)
    # Its lease passed while the process stood still, and a sweep made it due again.
    await notifications.connection.execute(
        "UPDATE notifyqueue.notifications SET status = 'PENDING', claim_token = NULL, worker_id = NULL,"
        " lease_expires_at = NULL, next_attempt_at = now() WHERE id = $1",
        id_,
    )

    async def claimed_again() -> bool:
        row = await notifications.get(id_)
        return bench.store.calls.count("claim_due") == 2 and row["status"] == "PENDING"

    await eventually(claimed_again)
    row = await notifications.get(id_)
    assert row["attempt_count"] == 1
    assert row["next_attempt_at"] > row["due_at"]
    assert bench.provider.requests == {id_: 1}
    bench.provider.gate.set()


async def test_what_runs_out_of_time_at_the_fence_is_not_sent(
    notifications: Notifications, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = await notifications.insert("short", at_most_once=True)
    await notifications.connection.execute(
        "UPDATE notifyqueue.notifications SET expire_at = now() + interval '30 seconds'"
    )

    def stand_still() -> None:
        monkeypatch.setattr("services.worker.claim.tick", lambda: tick() + 60)

    bench.store.after["start_attempts"] = [stand_still]
    await bench.start()

    async def over() -> bool:
        return await notifications.status(id_) == "EXPIRED"

    await eventually(over)
    assert not bench.provider.seen


async def test_one_claim_in_eight_begins_at_the_bottom(notifications: Notifications, bench: Bench) -> None:
    await bench.start()

    async def sixteen_claims() -> bool:
        return len(bench.store.classes) >= 16

    await eventually(sixteen_claims)
    low_first = [number for number, classes in enumerate(bench.store.classes[:16], start=1) if classes == (1, 2, 3)]
    assert low_first == [8, 16]


async def test_a_worker_that_is_leaving_is_not_resumed(notifications: Notifications, bench: Bench) -> None:
    bench.provider.gate.clear()
    await notifications.insert("running")
    worker = await bench.start()
    await eventually(bench.on_the_wire)
    leaving = asyncio.create_task(worker.__aexit__(None, None, None))

    async def draining() -> bool:
        return worker.draining

    await eventually(draining)
    worker.resume()
    later = await notifications.insert("later")
    bench.provider.gate.set()
    await leaving
    assert await notifications.status(later) == "PENDING"
