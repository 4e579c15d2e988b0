"""The database dies under load and comes back: nothing that was accepted is lost, and nobody else dies."""

import asyncio
import itertools
import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import asyncpg
import grpc.aio
import pytest

from notifyqueue.v1 import notification_pb2, scheduler_pb2, scheduler_pb2_grpc
from sandbox.accounts import RECEIVER
from sandbox.plan import Plan, make_plan
from sandbox.postgres import Postgres
from tests.ports import ports
from tests.processes import SERVING, Running, health, ready, running
from tests.waiting import eventually

SERVICES = {
    "scheduler": "notifyqueue.v1.Scheduler",
    "worker": "notifyqueue.v1.Worker",
    "dispatcher": "notifyqueue.v1.WebhookDispatcher",
}


@pytest.fixture
def durable() -> Iterator[Postgres]:
    """A server of the test's own, with nothing hasty about it."""
    with tempfile.TemporaryDirectory(prefix="notifyqueue-chaos-") as folder:
        Path(folder).chmod(0o755)
        with Postgres(Path(folder) / "data") as server:
            yield server


class Load:
    """Schedules one after the other, again and again where it is told to come back, and remembers every yes."""

    def __init__(self, channel: grpc.aio.Channel, key: str) -> None:
        self._metadata = (("authorization", f"Bearer {key}"),)
        self.accepted: list[str] = []
        self.refused: set[tuple[grpc.StatusCode, str]] = set()
        self._stub = scheduler_pb2_grpc.SchedulerStub(channel)
        self._numbers = itertools.count()

    async def run(self) -> None:
        while True:
            await self._schedule(f"load-{next(self._numbers)}")

    async def _schedule(self, key: str) -> None:
        email = notification_pb2.EmailContent(subject="Under load", text=key)
        request = scheduler_pb2.ScheduleNotificationRequest(idempotency_key=key, address="a@example.com", email=email)
        while True:
            try:
                answer = await self._stub.ScheduleNotification(request, timeout=10, metadata=self._metadata)
            except grpc.aio.AioRpcError as error:
                metadata = dict(error.trailing_metadata() or ())
                self.refused.add((error.code(), str(metadata.get("error-reason"))))
                await asyncio.sleep(0.05)
            else:
                self.accepted.append(answer.notification.notification_id)
                return


@asynccontextmanager
async def everything(plan: Plan, folder: Path) -> AsyncIterator[dict[str, Running]]:
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(
                running("sandbox" if name == "sandbox" else f"services.{name}", folder, plan.environment(name))
            )
            for name in ("sandbox", *SERVICES)
        }


async def test_killed_under_load_nothing_is_lost_and_everybody_lives(durable: Postgres, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        async with ports():
            plan = await make_plan(tmp_path, durable.url)
            processes = await stack.enter_async_context(everything(plan, tmp_path))
            for name, service in SERVICES.items():
                await ready(plan.address(f"{name} health"), service)
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(plan.address("scheduler")))
        load = Load(channel, plan.key)
        clients = [asyncio.create_task(load.run()) for _ in range(8)]

        await eventually(lambda: _at_least(load, 200), within=60)
        durable.kill()
        for name, service in SERVICES.items():
            await eventually(lambda name=name, service=service: _not_ready(plan, name, service))  # type: ignore[misc]
            assert await health(plan.address(f"{name} health"), "") == SERVING
        await asyncio.to_thread(durable.start)
        for name, service in SERVICES.items():
            await ready(plan.address(f"{name} health"), service)
        enough = len(load.accepted) + 200
        await eventually(lambda: _at_least(load, enough), within=60)
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)

        await eventually(lambda: _all_ended(durable.url), within=120)
        assert all(process.alive for process in processes.values())
        await _assert_each_is_sent_and_reported(durable.url, load.accepted)
    assert {reason for _, reason in load.refused} == {"DATABASE_UNAVAILABLE"}


async def _at_least(load: Load, count: int) -> bool:
    return len(load.accepted) >= count


async def _not_ready(plan: Plan, name: str, service: str) -> bool:
    return await health(plan.address(f"{name} health"), service) != SERVING


async def _all_ended(url: str) -> bool:
    connection = await asyncpg.connect(url)
    try:
        open_ = await connection.fetchval(
            "SELECT (SELECT count(*) FROM notifyqueue.notifications WHERE status IN ('PENDING', 'PROCESSING'))"
            " + (SELECT count(*) FROM notifyqueue.webhook_events WHERE fanned_out_at IS NULL)"
            " + (SELECT count(*) FROM notifyqueue.webhook_deliveries WHERE delivered_at IS NULL)"
        )
    finally:
        await connection.close()
    return bool(open_ == 0)


async def _assert_each_is_sent_and_reported(url: str, accepted: list[str]) -> None:
    # From the tables: what the sandbox lists is the newest 1,000.
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch("SELECT id, status FROM notifyqueue.notifications")
        mails = await connection.fetch("SELECT delivery_key FROM sandbox.mails")
        hooks = await connection.fetch("SELECT body FROM sandbox.webhooks WHERE name = $1", RECEIVER)
    finally:
        await connection.close()
    statuses = {str(row["id"]): row["status"] for row in rows}
    assert {statuses.get(id_) for id_ in accepted} == {"SENT"}
    reported = [json.loads(hook["body"])["data"]["notification_id"] for hook in hooks]
    assert set(accepted) <= {mail["delivery_key"] for mail in mails}
    assert set(accepted) <= set(reported)
    assert len(reported) == len(set(reported))
