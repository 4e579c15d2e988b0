"""Services in this process, on a database of the test's own, behind a real server and a real channel."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import grpc.aio
import pytest
from pydantic import SecretStr

from notifyqueue.v1 import scheduler_pb2_grpc
from services.scheduler import __main__ as scheduler_process
from services.scheduler.settings import Settings as SchedulerSettings
from services.worker import __main__ as worker_process
from services.worker.providers import Provider
from services.worker.settings import Settings as WorkerSettings
from services.worker.worker import Worker
from shared.process import Process
from tests.conftest import MakeDatabase, login

SECRET = "a secret key for tests, 32 characters"
ANYWHERE: dict[str, Any] = {
    "listen_address": "127.0.0.1:0",
    "health_listen": "127.0.0.1:0",
    "secret_key": SecretStr(SECRET),
    "auth": "off",
}

# Short enough to wait for, and long enough for a busy machine to renew a lease in.
QUICK: dict[str, Any] = {
    "email_provider": "mock",
    "lease": 3.0,
    "email_provider_timeout": 1.5,
    "poll_interval": 1.0,
    "retry_base": 0.2,
    "retry_cap": 1.0,
}

StartScheduler = Callable[..., Awaitable[grpc.aio.Channel]]
StartWorker = Callable[..., Awaitable[Worker]]


@pytest.fixture
async def stack(make_database: MakeDatabase) -> AsyncIterator[AsyncExitStack]:
    """What ends before its database goes."""
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def start_scheduler(stack: AsyncExitStack) -> StartScheduler:
    """Starts a scheduler on a database and answers a channel to it."""

    async def start(url: str, **settings: Any) -> grpc.aio.Channel:
        chosen = SchedulerSettings(database_url=SecretStr(login(url, "scheduler")), **ANYWHERE | settings)
        process = Process("scheduler", chosen, stack)
        await scheduler_process.start(process, chosen)
        return await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{process.port}"))

    return start


@pytest.fixture
async def scheduler(start_scheduler: StartScheduler, database_url: str) -> scheduler_pb2_grpc.SchedulerStub:
    return scheduler_pb2_grpc.SchedulerStub(await start_scheduler(database_url))


@pytest.fixture
def start_worker(stack: AsyncExitStack) -> StartWorker:
    """Starts a worker on a database, with a provider for its email lane, or for each, and answers it."""

    async def start(
        url: str, provider: Provider | Mapping[str, Provider], *, on: AsyncExitStack = stack, **settings: Any
    ) -> Worker:
        providers = provider if isinstance(provider, Mapping) else {"EMAIL": provider}
        chosen = WorkerSettings(database_url=SecretStr(login(url, "worker")), **ANYWHERE | QUICK | settings)
        process = Process("worker", chosen, on)
        return await worker_process.compose(process, chosen, providers)

    return start
