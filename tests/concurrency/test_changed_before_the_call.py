"""What a caller was told is what happens: what is CANCELLED, or moved to another day, is never handed to a provider."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from uuid import UUID

import grpc.aio
import pytest

from notifyqueue.v1 import notification_pb2, scheduler_pb2, scheduler_pb2_grpc
from tests.concurrency.test_reschedule import DAY, wish
from tests.integration.conftest import StartWorker, scheduler, stack, start_scheduler, start_worker
from tests.notifications import Notifications
from tests.providers import ScriptedProvider
from tests.waiting import eventually

__all__ = ["scheduler", "stack", "start_scheduler", "start_worker"]

Scheduler = scheduler_pb2_grpc.SchedulerStub
Status = notification_pb2.Notification.Status

RACES = 100


async def cancel(scheduler: Scheduler, id_: UUID) -> str:
    request = scheduler_pb2.CancelNotificationRequest(notification_id=str(id_))
    return Status.Name((await scheduler.CancelNotification(request)).notification.status)


async def move(scheduler: Scheduler, id_: UUID) -> str:
    return Status.Name((await scheduler.RescheduleNotification(wish(id_, delay=DAY))).notification.status)


async def succeeds(call: Awaitable[str], status: str) -> bool:
    """Whether the caller is told that it did; otherwise, that it was too late."""
    try:
        told = await call
    except grpc.aio.AioRpcError as error:
        told = error.code().name
    assert told in (status, "FAILED_PRECONDITION")
    return told == status


@pytest.mark.parametrize(
    ("change", "status"), [(cancel, "STATUS_CANCELLED"), (move, "STATUS_PENDING")], ids=["cancelled", "moved"]
)
async def test_what_was_changed_before_its_claim_is_not_sent_and_the_same_call_again_is_told_the_same(
    scheduler: Scheduler,
    notifications: Notifications,
    start_worker: StartWorker,
    database_url: str,
    change: Callable[[Scheduler, UUID], Awaitable[str]],
    status: str,
) -> None:
    ids = await notifications.insert_many(RACES)
    provider = ScriptedProvider()
    worker = await start_worker(database_url, provider, worker_concurrency=4)

    async def twice(id_: UUID) -> bool:
        first = await succeeds(change(scheduler, id_), status)
        assert await succeeds(change(scheduler, id_), status) is first
        return first

    await eventually(lambda: bool(provider.seen))
    told = await asyncio.gather(*map(twice, ids))
    changed = {id_ for id_, succeeded in zip(ids, told, strict=True) if succeeded}
    assert 0 < len(changed) < RACES  # or nothing met

    async def rest_sent() -> bool:
        return (await notifications.statuses()).get("SENT", 0) == RACES - len(changed)

    await eventually(rest_sent)
    await worker.drain(10)
    assert provider.requests == dict.fromkeys(set(ids) - changed, 1)
    assert await notifications.statuses() == {
        status.removeprefix("STATUS_"): len(changed),
        "SENT": RACES - len(changed),
    }
    events = Counter([event for id_ in changed for event in await notifications.events(id_)])
    assert events == ({"CANCELLED": len(changed)} if change is cancel else {})
