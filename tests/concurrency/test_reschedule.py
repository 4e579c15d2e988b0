"""Changes that meet a claim: one of the two happens first, and the caller is told which."""

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
DAY = timedelta(days=1)
MOVED, TAKEN = "STATUS_PENDING", "the notification is PROCESSING"


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


async def claim_half(worker: WorkerStore) -> list[UUID]:
    claimed: list[UUID] = []

    async def claim_some() -> None:
        while len(claimed) < RACES // 2 and (mine := await claim(worker, 4)):
            claimed.extend(mine)

    await asyncio.gather(*[claim_some() for _ in range(CLAIMERS)])
    return claimed


def wish(id_: UUID, **fields: Any) -> scheduler_pb2.RescheduleNotificationRequest:
    return scheduler_pb2.RescheduleNotificationRequest(notification_id=str(id_), **fields)


async def reschedule(scheduler: Scheduler, id_: UUID) -> str:
    """What the caller is told: MOVED or TAKEN."""
    request = wish(id_, delay=DAY)
    try:
        answer = await scheduler.RescheduleNotification(request)
    except grpc.aio.AioRpcError as error:
        return str(error.details())
    return notification_pb2.Notification.Status.Name(answer.notification.status)


async def ids_of(notifications: Notifications, table: str) -> list[UUID]:
    rows = await notifications.connection.fetch(
        f"SELECT notification_id FROM notifyqueue.{table} ORDER BY notification_id"
    )
    return [row["notification_id"] for row in rows]


async def test_each_of_200_races_has_one_outcome_and_the_caller_is_told_it(
    scheduler: Scheduler, worker: WorkerStore, notifications: Notifications
) -> None:
    ids = await notifications.insert_many(RACES)
    claiming = asyncio.create_task(claim_half(worker))
    told = dict(zip(ids, await asyncio.gather(*[reschedule(scheduler, id_) for id_ in ids]), strict=True))
    claimed = await claiming
    assert Counter(told.values()).keys() == {MOVED, TAKEN}  # or nothing met
    assert sorted(claimed) == sorted(id_ for id_, what in told.items() if what == TAKEN)
    moved = sorted(id_ for id_, what in told.items() if what == MOVED)
    rows = await notifications.connection.fetch(
        "SELECT id FROM notifyqueue.notifications"
        " WHERE status = 'PENDING' AND due_at > now() AND next_attempt_at = due_at ORDER BY id"
    )
    assert [row["id"] for row in rows] == moved
    assert await ids_of(notifications, "notification_history") == moved
    assert await ids_of(notifications, "webhook_events") == []


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "gives up"])
async def test_a_new_time_waits_for_a_claim_under_way(
    scheduler: Scheduler, worker: WorkerStore, notifications: Notifications, commits: bool
) -> None:
    async def waits() -> bool:
        return bool(await notifications.connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))

    id_ = await notifications.insert("order-1")
    try:
        async with worker.transaction() as transaction:
            assert await claim(transaction, 1) == [id_]
            call = asyncio.create_task(reschedule(scheduler, id_))
            await eventually(waits)
            assert not call.done()
            if not commits:
                raise GivesUp
    except GivesUp:
        pass
    assert await call == (TAKEN if commits else MOVED)
    assert await notifications.status(id_) == ("PROCESSING" if commits else "PENDING")


class GivesUp(Exception):
    """The claim does not commit."""


async def test_the_same_new_time_at_once_makes_one_change(scheduler: Scheduler, notifications: Notifications) -> None:
    id_ = await notifications.insert("order-1")
    request = wish(id_, due_time={"seconds": 1 << 31}, priority=notification_pb2.PRIORITY_HIGH)
    await notifications.connection.execute("UPDATE notifyqueue.tenants SET horizon = '100 years'")
    answers = await asyncio.gather(*[scheduler.RescheduleNotification(request) for _ in range(20)])
    assert {answer.notification.revision for answer in answers} == {2}
    assert len(await notifications.history(id_)) == 1


async def bulk_cancel(scheduler: Scheduler, limit: int) -> int:
    request = scheduler_pb2.BulkCancelNotificationsRequest(
        filter=notification_pb2.NotificationFilter(channel=notification_pb2.CHANNEL_EMAIL), limit=limit
    )
    return int((await scheduler.BulkCancelNotifications(request)).cancelled)


async def test_of_many_that_are_cancelled_by_a_filter_each_was_taken_or_not(
    scheduler: Scheduler, worker: WorkerStore, notifications: Notifications
) -> None:
    await notifications.insert_many(RACES)
    claiming = asyncio.create_task(claim_half(worker))
    counts = await asyncio.gather(*[bulk_cancel(scheduler, 40) for _ in range(6)])
    claimed = await claiming
    rows = await notifications.connection.fetch("SELECT id FROM notifyqueue.notifications WHERE status = 'CANCELLED'")
    cancelled = sorted(row["id"] for row in rows)
    assert sum(counts) == len(cancelled) == len(set(cancelled) - set(claimed))
    assert await ids_of(notifications, "notification_history") == cancelled
    assert await ids_of(notifications, "webhook_events") == cancelled
    left = await notifications.statuses()
    assert (left["CANCELLED"], left["PROCESSING"]) == (len(cancelled), len(claimed))
    assert 0 < len(claimed) < RACES  # or nothing met
