"""Who watches a notification that waits at its recipient's gate is told what he can see change, each once."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

import pytest

from notifyqueue.v1 import notification_pb2, scheduler_pb2, scheduler_pb2_grpc
from services.worker.admission import Entry
from shared.database import Database
from tests.conftest import login
from tests.integration.test_turnstile import HOT, HOUR, Rig, pass_window
from tests.notifications import Notifications
from tests.recipients import limit
from tests.waiting import eventually

Status = notification_pb2.Notification.Status


@pytest.fixture
async def rig(database_url: str) -> AsyncIterator[Rig]:
    async with Database(login(database_url, "worker"), name="test") as database:
        yield Rig(database)


@dataclass
class Watching:
    """A stream, and what it has told."""

    told: list[notification_pb2.Notification]

    async def read(self, stub: scheduler_pb2_grpc.SchedulerStub, key: str) -> None:
        async for answer in stub.WatchNotification(scheduler_pb2.WatchNotificationRequest(idempotency_key=key)):
            self.told.append(answer.notification)

    def looks(self) -> list[str]:
        """As a caller sees them, but for the revision."""
        looks = []
        for state in self.told:
            seen = notification_pb2.Notification()
            seen.CopyFrom(state)
            seen.revision = 0
            looks.append(str(seen))
        return looks


async def test_each_change_that_shows_is_told_once_and_being_called_up_is_none(
    scheduler: scheduler_pb2_grpc.SchedulerStub, notifications: Notifications, rig: Rig
) -> None:
    await limit(notifications, 1, HOUR)
    await notifications.insert("first", address=HOT, due_in=timedelta(seconds=-1))
    second = await notifications.insert("second", address=HOT)
    watching = Watching([])
    reading = asyncio.create_task(watching.read(scheduler, "second"))
    await eventually(lambda: bool(watching.told))
    assert await rig.turn(2) == [Entry.STARTS, Entry.WAITS]
    waits = await notifications.get(second)
    assert (waits["waiting"], waits["revision"]) == (True, 3)
    await pass_window(notifications)
    assert await rig.gates.open(1) == 1
    called_up = await notifications.get(second)
    assert (called_up["granted"], called_up["revision"]) == (True, 3)
    assert await rig.turn() == [Entry.STARTS]
    await eventually(lambda: watching.told[-1].status == Status.STATUS_PROCESSING)
    await notifications.connection.execute(
        "UPDATE notifyqueue.notifications SET status = 'SENT', finished_at = now(), claim_token = NULL,"
        " worker_id = NULL, lease_expires_at = NULL, revision = revision + 1 WHERE id = $1",
        second,
    )
    await reading
    looks = watching.looks()
    assert all(before != after for before, after in pairwise(looks))
    assert watching.told[-1].revision == 5
