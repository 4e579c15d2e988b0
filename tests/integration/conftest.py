"""Services in this process, on a database of the test's own, behind a real server and a real channel."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import grpc.aio
import pytest
from pydantic import SecretStr

from notifyqueue.v1 import scheduler_pb2_grpc
from services.scheduler import __main__ as scheduler_process
from services.scheduler.settings import Settings as SchedulerSettings
from shared.process import Process

SECRET = "a secret key for tests, 32 characters"
ANYWHERE = {"listen_address": "127.0.0.1:0", "health_listen": "127.0.0.1:0", "secret_key": SecretStr(SECRET)}

StartScheduler = Callable[..., Awaitable[grpc.aio.Channel]]


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def start_scheduler(stack: AsyncExitStack) -> StartScheduler:
    """Starts a scheduler on a database and answers a channel to it."""

    async def start(url: str, **settings: Any) -> grpc.aio.Channel:
        chosen = SchedulerSettings(database_url=SecretStr(url), **ANYWHERE | settings)
        process = Process("scheduler", chosen, stack)
        await scheduler_process.start(process, chosen)
        return await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{process.port}"))

    return start


@pytest.fixture
async def scheduler(start_scheduler: StartScheduler, database_url: str) -> "scheduler_pb2_grpc.SchedulerAsyncStub":
    return scheduler_pb2_grpc.SchedulerStub(await start_scheduler(database_url))
