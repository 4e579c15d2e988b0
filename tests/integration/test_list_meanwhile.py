"""What changes between two pages of a list hides nothing else."""

from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from notifyqueue.v1 import notification_pb2, scheduler_pb2, scheduler_pb2_grpc
from tests.notifications import Notifications

Scheduler = scheduler_pb2_grpc.SchedulerStub

COUNT = 23
FAIL = "status = 'FAILED', finished_at = now(), failure_reason = 'MESSAGE_REJECTED'"
REDRIVE = "status = 'PENDING', finished_at = NULL, failure_reason = NULL, redrive_count = 1, last_redriven_at = now()"


async def change(notifications: Notifications, columns: str, *ids: UUID) -> None:
    await notifications.connection.execute(
        f"UPDATE notifyqueue.notifications SET {columns}, revision = revision + 1 WHERE id = ANY($1)", ids
    )


async def pages(scheduler: Scheduler, **filter_: Any) -> AsyncIterator[Sequence[str]]:
    request = scheduler_pb2.ListNotificationsRequest(page_size=4, filter=notification_pb2.NotificationFilter(**filter_))
    while True:
        page = await scheduler.ListNotifications(request)
        yield [row.idempotency_key for row in page.notifications]
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


async def test_what_changes_its_status_meanwhile_hides_no_other(
    scheduler: Scheduler, notifications: Notifications
) -> None:
    """Of what was listed, and of what was not yet, one leaves at each page; and one comes on either side."""
    ids = [await notifications.insert(f"{number}") for number in range(2 * COUNT)]
    failed, others = ids[::2], ids[1::2]
    await change(notifications, FAIL, *failed)
    unchanged = {f"{number}" for number in range(0, 2 * COUNT, 2)}
    found: list[str] = []
    async for page in pages(scheduler, status="STATUS_FAILED"):
        found += page
        if len(found) == len(page):
            leaving = [failed[-1], failed[-6], failed[0]]
            unchanged -= {f"{ids.index(id_)}" for id_ in leaving}
            await change(notifications, REDRIVE, *leaving)
            await change(notifications, FAIL, others[-1], others[5])
    assert len(found) == len(set(found))
    assert unchanged <= set(found)
    assert found == sorted(found, key=int, reverse=True)
    assert f"{ids.index(others[5])}" in found  # it came where the list had not been


@pytest.mark.parametrize("before_page", [1, 3])
async def test_what_was_begun_earlier_and_is_committed_meanwhile_hides_no_other(
    scheduler: Scheduler, notifications: Notifications, database_url: str, before_page: int
) -> None:
    slow = await asyncpg.connect(database_url)
    try:
        for number in range(COUNT):
            await notifications.insert(f"{number}")
            if number == COUNT // 2:
                transaction = slow.transaction()
                await transaction.start()
                for late in range(5):
                    await Notifications(slow).insert(f"late {late}")
        found: list[str] = []
        number = 0
        async for page in pages(scheduler):
            found += page
            number += 1
            if number == before_page:
                await transaction.commit()
    finally:
        await slow.close()
    assert [key for key in found if "late" not in key] == [f"{number}" for number in reversed(range(COUNT))]
    assert len(found) == len(set(found))
