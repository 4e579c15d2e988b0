"""The real thing: a scheduler process behind gRPC, and a worker with a provider that does nothing."""

import asyncio
import itertools
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pydantic import SecretStr

from notifyqueue.v1 import notification_pb2, scheduler_pb2, scheduler_pb2_grpc
from services.worker import spans
from services.worker.__main__ import compose
from services.worker.providers import Answer, Handover, Message, Outcome
from services.worker.providers.smtp import Smtp, SmtpSettings, Tls
from services.worker.settings import Settings
from shared.process import Process
from shared.starting import settle

SECRET = "a secret key of a benchmark, 32 characters"
ADDRESS = "127.0.0.1:20051"
SERVICE = "notifyqueue.v1.Scheduler"
CALL = spans.smtp("127.0.0.1", 25)
LOGINS = "measured"  # their prefix, and their password


def login(url: str, service: str) -> str:
    """The URL of a service's own login, which plans as it does (shared/roles.py)."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{LOGINS}_{service}:{LOGINS}@{host}"))


class NoOp:
    """Accepts everything at once, with the span of a call, and remembers when."""

    name = "no-op"

    def __init__(self) -> None:
        self.count = 0
        self.reached = asyncio.Event()
        self.target = 0

    def expect(self, count: int) -> None:
        self.count, self.target = 0, count
        self.reached.clear()

    async def deliver(self, message: Message, handover: Handover) -> Outcome:
        with spans.call(CALL):
            handover.begin()
        self._accepted()
        return Outcome(Answer.ACCEPTED, provider_message_id="m")

    def _accepted(self) -> None:
        self.count += 1
        if self.count == self.target:
            self.reached.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        return None


class Mailing(NoOp):
    """Sends mails, to a server on this machine that takes them all (benchmarks/sink.py)."""

    name = "smtp"

    def __init__(self, port: int) -> None:
        super().__init__()
        self._smtp = Smtp(SmtpSettings(host="127.0.0.1", port=port, tls=Tls.NONE, sender="shop@example.org"))

    async def deliver(self, message: Message, handover: Handover) -> Outcome:
        outcome = await self._smtp.deliver(message, handover)
        self._accepted()
        return outcome

    async def __aenter__(self) -> Self:
        await self._smtp.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self._smtp.__aexit__()


@asynccontextmanager
async def scheduler(url: str) -> AsyncIterator[scheduler_pb2_grpc.SchedulerStub]:
    """A scheduler in a process of its own."""
    environment = {
        "NOTIFYQUEUE_DATABASE_URL": url,
        "NOTIFYQUEUE_SECRET_KEY": SECRET,
        "NOTIFYQUEUE_LISTEN_ADDRESS": ADDRESS,
        "NOTIFYQUEUE_HEALTH_LISTEN": "127.0.0.1:20061",
        "NOTIFYQUEUE_LOG_LEVEL": "WARNING",
        "NOTIFYQUEUE_AUTH": "off",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.scheduler", env=os.environ | environment
    )
    try:
        async with grpc.aio.insecure_channel(ADDRESS) as channel:
            await _ready(channel)
            yield scheduler_pb2_grpc.SchedulerStub(channel)
    finally:
        process.terminate()
        await process.wait()


async def _ready(channel: grpc.aio.Channel) -> None:
    request = health_pb2.HealthCheckRequest(service=SERVICE)
    async for answer in health_pb2_grpc.HealthStub(channel).Watch(request, wait_for_ready=True):  # type: ignore[attr-defined]
        if answer.status == health_pb2.HealthCheckResponse.SERVING:
            return


@asynccontextmanager
async def worker(url: str, provider: NoOp, concurrency: int) -> AsyncIterator[None]:
    """A worker in this process."""
    settings = Settings(
        database_url=SecretStr(url),
        secret_key=SecretStr(SECRET),
        auth="off",
        listen_address="127.0.0.1:20052",
        health_listen="127.0.0.1:20062",
        worker_concurrency=concurrency,
        email_provider="mock",  # not asked: compose is given the provider
    )
    async with AsyncExitStack() as stack:
        await compose(Process("worker", settings, stack), settings, {"EMAIL": provider})
        settle()
        yield


def request(key: str) -> scheduler_pb2.ScheduleNotificationRequest:
    email = notification_pb2.EmailContent(subject="Hello", text="x" * 200)
    return scheduler_pb2.ScheduleNotificationRequest(idempotency_key=key, address="someone@example.com", email=email)


async def accepted_per_second(stub: scheduler_pb2_grpc.SchedulerStub, seconds: float, in_flight: int) -> float:
    """Unary calls, `in_flight` at once."""
    numbers = itertools.count()

    async def call(until: float) -> int:
        accepted = 0
        while time.monotonic() < until:
            await stub.ScheduleNotification(request(f"ours-{next(numbers)}"))
            accepted += 1
        return accepted

    began = time.monotonic()
    counts = await asyncio.gather(*(call(began + seconds) for _ in range(in_flight)))
    return sum(counts) / (time.monotonic() - began)


async def latencies(stub: scheduler_pb2_grpc.SchedulerStub, provider: NoOp, count: int, name: str) -> list[float]:
    """Seconds from the start of a call to the provider's call, with nothing else to do."""
    found = []
    for number in range(count):
        provider.expect(1)
        began = time.monotonic()
        await stub.ScheduleNotification(request(f"{name}-{number}"))
        await provider.reached.wait()
        found.append(time.monotonic() - began)
        await asyncio.sleep(0.06)  # the notifier's quiet time: idle means that nobody was told a moment ago
    return found
