"""A cancellation that meets a claim: one of them happens, and the caller is told which."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import grpc.aio
import pytest
from pydantic import SecretStr

from notifyqueue.v1 import notification_pb2, scheduler_pb2, scheduler_pb2_grpc
from services.scheduler import __main__ as scheduler_process
from services.scheduler.settings import Settings
from services.worker.store import Store, WorkerStore
from shared.database import Database
from shared.process import Process
from tests.conftest import login
from tests.integration.conftest import ANYWHERE
from tests.notifications import Notifications
from tests.waiting import eventually

Scheduler = scheduler_pb2_grpc.SchedulerStub

RACES = 200
CLAIMERS = 4
CLAIM: dict[str, Any] = {
    "classes": [3, 2, 1],
    "due_for": timedelta(),
    "lease": timedelta(minutes=1),
    "take_suspect": False,
}


@pytest.fixture
async def scheduler(database_url: str) -> AsyncIterator[Scheduler]:
    async with AsyncExitStack() as stack:
        settings = Settings(database_url=SecretStr(login(database_url, "scheduler")), **ANYWHERE)
        process = Process("scheduler", settings, stack)
        await scheduler_process.start(process, settings)
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{process.port}"))
        yield scheduler_pb2_grpc.SchedulerStub(channel)


@pytest.fixture
async def worker(database_url: str) -> AsyncIterator[WorkerStore]:
    async with Database(login(database_url, "worker"), name="worker", size=CLAIMERS) as database:
        yield WorkerStore(database)


async def claim(store: Store, limit: int) -> list[UUID]:
    claims = await store.claim_due("EMAIL", limit=limit, token=uuid4(), worker_id=uuid4(), **CLAIM)
    return [claim.notification_id for claim in claims]


CANCELLED, TAKEN = "CANCELLED", "the notification is PROCESSING"


async def cancel(scheduler: Scheduler, id_: UUID) -> str:
    """What the caller is told: CANCELLED or TAKEN."""
    try:
        answer = await scheduler.CancelNotification(scheduler_pb2.CancelNotificationRequest(notification_id=str(id_)))
    except grpc.aio.AioRpcError as error:
        return str(error.details())
    return notification_pb2.Notification.Status.Name(answer.notification.status).removeprefix("STATUS_")


async def test_each_of_200_races_has_one_outcome_and_the_caller_is_told_it(
    scheduler: Scheduler, worker: WorkerStore, notifications: Notifications
) -> None:
    ids = await notifications.insert_many(RACES)
    claimed: list[UUID] = []

    async def claim_some() -> None:
        while len(claimed) < RACES // 2 and (mine := await claim(worker, 4)):
            claimed.extend(mine)

    claiming = [asyncio.create_task(claim_some()) for _ in range(CLAIMERS)]
    told = dict(zip(ids, await asyncio.gather(*[cancel(scheduler, id_) for id_ in ids]), strict=True))
    await asyncio.gather(*claiming)
    assert Counter(told.values()).keys() == {CANCELLED, TAKEN}  # or nothing met
    assert sorted(claimed) == sorted(id_ for id_, what in told.items() if what == TAKEN)
    ended = sorted(id_ for id_, what in told.items() if what == CANCELLED)
    assert await notifications.statuses() == {"CANCELLED": len(ended), "PROCESSING": len(claimed)}
    assert await ids_of(notifications, "webhook_events") == ended
    assert await ids_of(notifications, "notification_history") == ended


async def ids_of(notifications: Notifications, table: str) -> list[UUID]:
    rows = await notifications.connection.fetch(
        f"SELECT notification_id FROM notifyqueue.{table} ORDER BY notification_id"
    )
    return [row["notification_id"] for row in rows]


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "gives up"])
async def test_a_cancellation_waits_for_a_claim_under_way(
    scheduler: Scheduler, worker: WorkerStore, notifications: Notifications, commits: bool
) -> None:
    async def cancel_waits() -> bool:
        return bool(await notifications.connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))

    id_ = await notifications.insert("order-1")
    try:
        async with worker.transaction() as transaction:
            assert await claim(transaction, 1) == [id_]
            call = asyncio.create_task(cancel(scheduler, id_))
            await eventually(cancel_waits)
            assert not call.done()
            if not commits:
                raise GivesUp
    except GivesUp:
        pass
    assert await call == (TAKEN if commits else CANCELLED)
    assert await notifications.status(id_) == ("PROCESSING" if commits else "CANCELLED")


class GivesUp(Exception):
    """The claim does not commit."""


async def test_a_claim_passes_by_what_is_being_cancelled(worker: WorkerStore, notifications: Notifications) -> None:
    id_ = await notifications.insert("order-1")
    cancelling = notifications.connection.transaction()
    await cancelling.start()
    await notifications.connection.execute(
        "UPDATE notifyqueue.notifications SET status = 'CANCELLED', finished_at = now() WHERE id = $1", id_
    )
    async with asyncio.timeout(20):
        assert await claim(worker, 1) == []
    await cancelling.commit()
    assert await claim(worker, 1) == []


async def test_a_cancelled_notification_is_claimed_by_nobody(
    scheduler: Scheduler, worker: WorkerStore, notifications: Notifications
) -> None:
    ids = await notifications.insert_many(20)
    assert await asyncio.gather(*[cancel(scheduler, id_) for id_ in ids]) == [CANCELLED] * 20
    assert await claim(worker, 64) == []
