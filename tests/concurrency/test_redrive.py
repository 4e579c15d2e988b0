"""Redrives that meet: whatever many operators find at once is redriven once, and each is told what it did."""

import asyncio
from collections import Counter
from typing import Any
from uuid import UUID

import grpc.aio
import pytest

from notifyqueue.v1 import notification_pb2, scheduler_pb2, scheduler_pb2_grpc
from services.scheduler.redrives import Redriving
from tests.concurrency.test_reschedule import claim, ids_of, scheduler, worker
from tests.integration.test_get_list_cancel import STATUSES
from tests.notifications import Notifications

Scheduler = scheduler_pb2_grpc.SchedulerStub

__all__ = ["scheduler", "worker"]

OPERATORS = 5
DEAD: dict[str, Any] = {"status": "DEAD_LETTERED", **STATUSES["DEAD_LETTERED"], "attempt_count": 5}


async def bulk_redrive(scheduler: Scheduler, limit: int = 50) -> int:
    request = scheduler_pb2.BulkRedriveNotificationsRequest(
        filter=notification_pb2.NotificationFilter(channel=notification_pb2.CHANNEL_EMAIL), limit=limit
    )
    return int((await scheduler.BulkRedriveNotifications(request)).redriven)


async def redrive(scheduler: Scheduler, id_: UUID) -> tuple[int, int]:
    request = scheduler_pb2.RedriveNotificationRequest(notification_id=str(id_))
    answered = (await scheduler.RedriveNotification(request)).notification
    return answered.redrive_count, answered.revision


async def all_redriven_once(notifications: Notifications, ids: list[UUID]) -> None:
    rows = await notifications.connection.fetch(
        "SELECT id FROM notifyqueue.notifications WHERE status = 'PENDING' AND redrive_count = 1 ORDER BY id"
    )
    assert [row["id"] for row in rows] == ids
    assert await ids_of(notifications, "notification_history") == ids
    assert await ids_of(notifications, "webhook_events") == []


async def test_five_operators_at_once_redrive_each_of_50_once(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    ids = await notifications.insert_many(50, **DEAD)
    counts = await asyncio.gather(*[bulk_redrive(scheduler) for _ in range(OPERATORS)])
    assert sum(counts) == 50
    await all_redriven_once(notifications, ids)


async def test_five_operators_with_a_limit_share_what_there_is(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    ids = await notifications.insert_many(50, **DEAD)
    counts = await asyncio.gather(*[bulk_redrive(scheduler, 10) for _ in range(OPERATORS)])
    assert counts == [10] * OPERATORS
    await all_redriven_once(notifications, ids)


async def test_five_operators_who_name_the_same_ones_are_answered_the_one_redrive(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    ids = await notifications.insert_many(20, **DEAD)
    answers = await asyncio.gather(*[redrive(scheduler, id_) for _ in range(OPERATORS) for id_ in ids])
    assert Counter(answers) == {(1, 2): OPERATORS * len(ids)}
    await all_redriven_once(notifications, ids)


async def test_what_died_again_since_it_was_found_is_not_redriven_by_who_found_it_before(
    scheduler: Scheduler, notifications: Notifications, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The revision is what tells: by its status alone it would be redriven once by each."""
    (id_,) = await notifications.insert_many(1, **DEAD)
    found, goes_on = asyncio.Event(), asyncio.Event()
    send_back: Any = Redriving._send_back

    async def later(self: Redriving, *args: Any) -> Any:
        if not found.is_set():
            found.set()
            await goes_on.wait()
        return await send_back(self, *args)

    monkeypatch.setattr(Redriving, "_send_back", later)
    first = asyncio.create_task(bulk_redrive(scheduler))
    await found.wait()
    assert await bulk_redrive(scheduler) == 1
    await notifications.connection.execute(
        "UPDATE notifyqueue.notifications SET status = 'DEAD_LETTERED', failure_reason = 'ATTEMPTS_EXHAUSTED', "
        "finished_at = now(), revision = revision + 1"
    )
    goes_on.set()
    assert await first == 0
    row = await notifications.get(id_)
    assert (row["status"], row["redrive_count"]) == ("DEAD_LETTERED", 1)


async def test_what_is_redriven_is_claimed_and_not_redriven_again(
    scheduler: Scheduler, worker: Any, notifications: Notifications
) -> None:
    ids = await notifications.insert_many(50, **DEAD)
    claimed: list[UUID] = []

    async def claim_all() -> None:
        while len(claimed) < len(ids):
            claimed.extend(await claim(worker, 4))

    claiming = asyncio.create_task(claim_all())
    counts = await asyncio.gather(*[bulk_redrive(scheduler, 20) for _ in range(OPERATORS)])
    async with asyncio.timeout(60):
        await claiming
    assert sum(counts) == 50
    assert sorted(claimed) == ids
    with pytest.raises(grpc.aio.AioRpcError, match="the notification is PROCESSING"):
        await redrive(scheduler, ids[0])
