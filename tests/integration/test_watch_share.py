"""No tenant's streams take the room of all others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2

from notifyqueue.v1 import scheduler_pb2, scheduler_pb2_grpc
from shared.access import Role
from tests.keyed import Metadata, Owner, bearer, start_keyed
from tests.notifications import Notifications
from tests.waiting import eventually

SCHEDULER = "notifyqueue.v1.Scheduler"


@pytest.fixture
async def owner(database_url: str) -> AsyncIterator[Owner]:
    connection = await asyncpg.connect(database_url)
    try:
        yield Owner(connection)
    finally:
        await connection.close()


class Streams:
    """Of calls that are told what is, and then nothing."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = scheduler_pb2_grpc.SchedulerStub(channel)

    async def open(self, key: Metadata) -> Any:
        call = self._stub.WatchNotification(
            scheduler_pb2.WatchNotificationRequest(idempotency_key="order-1"), metadata=key
        )
        async with asyncio.timeout(20):
            assert await call.read()
        return call

    async def opens(self, key: Metadata) -> bool:
        try:
            await self.open(key)
        except grpc.aio.AioRpcError:
            return False
        return True

    async def refusal(self, key: Metadata) -> tuple[str, float]:
        """The reason, and in how many seconds to come back."""
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await self.open(key)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        trailers: dict[str, Any] = dict(refused.value.trailing_metadata())
        info = error_details_pb2.RetryInfo()
        details = status_pb2.Status.FromString(trailers["grpc-status-details-bin"]).details
        assert any(detail.Unpack(info) for detail in details)
        return trailers["error-reason"], info.retry_delay.ToTimedelta().total_seconds()


async def test_one_tenant_has_half_of_the_streams_and_the_others_the_rest(
    database_url: str, stack: AsyncExitStack, owner: Owner, notifications: Notifications
) -> None:
    keyed = await start_keyed(stack, database_url, SCHEDULER, max_watchers=5)
    streams = Streams(keyed.channels[SCHEDULER])
    keys = []
    for tenant in ("default", await owner.tenant("other"), await owner.tenant("third")):
        await notifications.insert("order-1", tenant_id=tenant)
        keys.append(bearer(await owner.key(Role.SENDER, tenant)))
    mine, others, thirds = keys
    first, *_ = [await streams.open(mine) for _ in range(3)]
    second_key = bearer(await owner.key(Role.ADMIN))  # of the same tenant
    assert await streams.refusal(second_key) == ("TENANT_LIMIT_EXCEEDED", 1)
    for _ in range(2):
        await streams.open(others)
    assert await streams.refusal(thirds) == ("SERVER_OVERLOADED", 1)
    first.cancel()
    await eventually(lambda: streams.opens(thirds))
