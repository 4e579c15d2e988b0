"""Text and push messages go the whole way, as scripts in their addresses rehearse it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

import pytest

from notifyqueue.v1 import scheduler_pb2, scheduler_pb2_grpc
from sandbox.mock_provider import MockProvider
from sandbox.server import HttpServer
from sandbox.store import Store
from services.worker.providers.mock import Mock, MockSettings
from tests.integration.conftest import StartWorker
from tests.notifications import Notifications
from tests.waiting import eventually

Scheduler = scheduler_pb2_grpc.SchedulerStub


@pytest.fixture
async def sandbox(database_url: str) -> AsyncIterator[Store]:
    async with Store(database_url) as store:
        yield store


@pytest.fixture
async def mocks(stack: AsyncExitStack, sandbox: Store) -> Mapping[str, Mock]:
    server = await stack.enter_async_context(HttpServer(0, [MockProvider(sandbox)]))
    settings = MockSettings(url=f"http://127.0.0.1:{server.port}/")
    mocks = {channel: Mock(settings, channel) for channel in ("SMS", "PUSH")}
    for mock in mocks.values():
        await stack.enter_async_context(mock)
    return mocks


@pytest.mark.parametrize(
    ("said", "status", "attempts", "content"),
    [
        ({"address": "+1 (202) 555-0141", "sms": {"text": "Hello"}}, "SENT", 2, {"text": "Hello"}),
        ({"address": "+44 7700 900123", "sms": {"text": "Hello"}}, "SENT", 1, {"text": "Hello"}),
        ({"address": "+1 202 555 0110", "sms": {"text": "Hello"}}, "FAILED", 1, None),
        ({"address": "425x1+token", "push": {"title": "Hello"}}, "SENT", 2, {"title": "Hello"}),
        ({"address": "invalid-token", "push": {"title": "Hello"}}, "FAILED", 1, None),
    ],
    ids=["a number that fails once", "a number", "a dead number", "a token that fails once", "a dead token"],
)
async def test_a_message_ends_as_its_address_says(
    start_worker: StartWorker,
    scheduler: Scheduler,
    notifications: Notifications,
    mocks: Mapping[str, Mock],
    sandbox: Store,
    database_url: str,
    said: dict[str, Any],
    status: str,
    attempts: int,
    content: Mapping[str, Any] | None,
) -> None:
    await start_worker(database_url, mocks)
    request = scheduler_pb2.ScheduleNotificationRequest(idempotency_key="order-1", **said)
    id_ = UUID((await scheduler.ScheduleNotification(request)).notification.notification_id)

    async def ended() -> bool:
        return await notifications.status(id_) == status

    await eventually(ended)
    assert (await notifications.get(id_))["attempt_count"] == attempts
    delivered = await sandbox.list_mock_deliveries(key=id_)
    assert [delivery["content"] for delivery in delivered] == ([] if content is None else [content])
