"""A quota as callers and the owner meet it. That it is exact: tests/concurrency/test_accept_limits.py."""

import asyncio
from typing import Any

import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2

from shared import admin
from tests.integration.test_accept_limits import Scheduler, buckets, schedule
from tests.notifications import Notifications

COUNTED = "UPDATE notifyqueue.accept_buckets SET counted_at = counted_at - interval '1 s'"


@pytest.fixture
def owner(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("DATABASE_URL", database_url)

    async def run(*arguments: str) -> None:
        assert await asyncio.to_thread(admin.main, ["tenant", "set", "default", *arguments]) == 0

    return run


async def full(scheduler: Scheduler, key: str) -> bool:
    """Whether it is refused by the quota, which names what there are too many of."""
    try:
        await scheduler.ScheduleNotification(schedule(key))
    except grpc.aio.AioRpcError as error:
        refused = error
    else:
        return False
    trailers: dict[str, Any] = dict(refused.trailing_metadata() or ())
    assert (refused.code(), trailers["error-reason"]) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED")
    info = error_details_pb2.ErrorInfo()
    details = status_pb2.Status.FromString(trailers["grpc-status-details-bin"]).details
    assert any(detail.Unpack(info) for detail in details)
    return info.metadata["resource"] == "pending notification"


async def test_a_quota_on_what_is_pending_from_its_setting_to_its_taking_away(
    scheduler: Scheduler, notifications: Notifications, owner: Any
) -> None:
    await scheduler.ScheduleNotification(schedule("there before"))
    await owner("--pending-quota", "3")
    assert [await full(scheduler, key) for key in ("a", "b", "c")] == [False, False, True]
    before = await buckets(notifications)

    # What is refused leaves no trace, and a replay is answered all the same.
    assert await full(scheduler, "c")
    assert (await scheduler.ScheduleNotification(schedule("a"))).replayed
    assert await buckets(notifications) == before
    assert await notifications.statuses() == {"PENDING": 3}

    # What is over makes room, and that is seen when it is counted again.
    await notifications.connection.execute(
        "UPDATE notifyqueue.notifications SET status = 'CANCELLED', finished_at = now() WHERE idempotency_key = 'a'"
    )
    await notifications.connection.execute(COUNTED)
    assert [await full(scheduler, key) for key in ("c", "d")] == [False, True]

    # A larger one holds at once; so does none, and what went in meanwhile counts when one is set again.
    await owner("--pending-quota", "4")
    assert [await full(scheduler, key) for key in ("d", "e")] == [False, True]
    await owner("--pending-quota", "none")
    assert [await full(scheduler, key) for key in ("e", "f")] == [False, False]
    await owner("--pending-quota", "5")
    assert await full(scheduler, "g")
    assert await notifications.statuses() == {"PENDING": 6, "CANCELLED": 1}
