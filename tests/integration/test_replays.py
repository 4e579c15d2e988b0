"""A request is the same one however its instants are written."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import grpc.aio
import pytest

from notifyqueue.v1 import scheduler_pb2, scheduler_pb2_grpc
from tests.notifications import Notifications

Scheduler = scheduler_pb2_grpc.SchedulerStub

TOMORROW = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
OFFSETS = [UTC, timezone(timedelta(hours=2)), timezone(timedelta(hours=-9, minutes=-30))]


def schedule(due: datetime, expire: datetime) -> scheduler_pb2.ScheduleNotificationRequest:
    fields: dict[str, Any] = {"due_time": due, "expire_time": expire, "email": {"subject": "Hello", "text": "text"}}
    return scheduler_pb2.ScheduleNotificationRequest(idempotency_key="order-1", address="someone@example.com", **fields)


async def test_equal_instants_in_other_offsets_are_a_replay(scheduler: Scheduler, notifications: Notifications) -> None:
    answers = [
        await scheduler.ScheduleNotification(
            schedule(TOMORROW.astimezone(offset), (TOMORROW + timedelta(hours=1)).astimezone(offset))
        )
        for offset in OFFSETS
    ]
    assert [answer.replayed for answer in answers] == [False, True, True]
    assert await notifications.statuses() == {"PENDING": 1}
    with pytest.raises(grpc.aio.AioRpcError, match="different request"):  # the same hour on another wall clock
        await scheduler.ScheduleNotification(
            schedule(TOMORROW.replace(tzinfo=OFFSETS[1]), TOMORROW + timedelta(hours=1))
        )
