"""A scheduler and a worker whose clocks are an hour off: what is due, leased, limited and over is the database's."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from notifyqueue.v1 import notification_pb2, scheduler_pb2
from notifyqueue.v1.scheduler_pb2_grpc import SchedulerStub
from tests.conftest import login
from tests.ledger import Call, Ledger, open_ledger
from tests.notifications import Notifications
from tests.processes import QUICK, environment, running
from tests.programs import FAKETIME, require_program
from tests.recipients import limit, waiting
from tests.waiting import eventually

HALF_AN_HOUR = timedelta(minutes=30)
HELD, LIMITED = "held@example.com", "limited@example.com"


@pytest.fixture(params=["+1h", "-1h"], ids=["ahead", "behind"])
def off(request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment of a process whose time of day is off. How long something takes is left alone."""
    library = require_program("faketime", FAKETIME)
    return {"LD_PRELOAD": str(library), "FAKETIME": request.param, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


@pytest.fixture
async def ledger() -> AsyncIterator[Ledger]:
    async with open_ledger() as ledger:
        yield ledger


def at(time: datetime) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(time)
    return stamp


class Caller:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = SchedulerStub(channel)

    async def schedule(self, key: str, address: str, **times: Timestamp | Duration) -> UUID:
        request = scheduler_pb2.ScheduleNotificationRequest(
            idempotency_key=key, address=address, email=notification_pb2.EmailContent(subject="Hello", text=key)
        )
        for name, time in times.items():
            getattr(request, name).CopyFrom(time)
        return UUID((await self._stub.ScheduleNotification(request)).notification.notification_id)

    async def refused(self, key: str, **times: Timestamp) -> bool:
        try:
            await self.schedule(key, "someone@example.com", **times)
        except grpc.aio.AioRpcError as error:
            return error.code() is grpc.StatusCode.INVALID_ARGUMENT
        return False


async def test_an_hour_off_what_is_due_leased_limited_and_over_stays_right(
    database_url: str, notifications: Notifications, ledger: Ledger, tmp_path: Path, off: dict[str, str]
) -> None:
    now: datetime = await notifications.connection.fetchval("SELECT now()")
    let_go = asyncio.Event()

    async def hold(call: Call) -> None:
        if call.address == HELD:
            await let_go.wait()

    ledger.before_answer = hold
    await limit(notifications, 2, timedelta(hours=1))
    held_by: dict[str, Any] = {"claim_token": uuid4(), "worker_id": uuid4()}
    held_by |= {"status": "PROCESSING", "attempt_count": 1}
    leased = await notifications.insert("leased", **held_by, lease_expires_at=now + HALF_AN_HOUR)
    lost = await notifications.insert("lost", address="lost@example.com", **held_by, lease_expires_at=now)
    over = await notifications.insert("over", due_in=-HALF_AN_HOUR, expire_at=now - timedelta(minutes=1))
    async with AsyncExitStack() as stack:
        settings = environment(login(database_url, "scheduler"))
        scheduler = await stack.enter_async_context(running("services.scheduler", tmp_path, settings | off))
        settings = environment(login(database_url, "worker"), **QUICK, **ledger.settings("worker"))
        worker = await stack.enter_async_context(running("services.worker", tmp_path, settings | off))
        address = f"127.0.0.1:{await scheduler.port()}"
        caller = Caller(await stack.enter_async_context(grpc.aio.insecure_channel(address)))
        await worker.logged("process.ready")
        assert abs(logged_at(worker.events()[0]) - datetime.now(UTC)) > HALF_AN_HOUR  # its clock is off indeed

        later = await caller.schedule("later", "later@example.com", due_time=at(now + HALF_AN_HOUR))
        brief = await caller.schedule(
            "brief", "brief@example.com", due_time=at(now), expire_time=at(now + HALF_AN_HOUR)
        )
        past = await caller.schedule("past", "past@example.com", due_time=at(now - timedelta(hours=23, minutes=30)))
        soon = await caller.schedule("soon", "soon@example.com", delay=Duration(seconds=1))
        limited = [await caller.schedule(f"limited-{number}", LIMITED) for number in range(4)]
        assert await caller.refused("long past", due_time=at(now - timedelta(hours=24, minutes=30)))
        assert await caller.refused("far", due_time=at(now + timedelta(days=365, minutes=30)))
        assert await caller.refused("expired", due_time=at(now), expire_time=at(now - timedelta(minutes=1)))

        sent = {brief, past, soon, lost, *limited[:2]}
        await eventually(lambda: all_in(notifications, sent, "SENT"), within=60)
        await eventually(lambda: all_in(notifications, {over}, "EXPIRED"))
        await eventually(lambda: is_waiting(notifications, 2))
        held = await caller.schedule("held", HELD)
        await eventually(lambda: held in ledger.requests)
        # By now the sweeps have been at all of them.
        assert await notifications.status(leased) == "PROCESSING"
        assert await notifications.status(later) == "PENDING"
        assert await lease_left(notifications, held) <= timedelta(seconds=float(QUICK["LEASE"]))
        assert [entry["kind"] for entry in await notifications.history(lost)] == ["ATTEMPT_UNKNOWN"]
        row = await notifications.get(soon)
        assert row["due_at"] == row["created_at"] + timedelta(seconds=1)
        assert row["finished_at"] >= row["due_at"]
        assert now <= row["created_at"] <= now + HALF_AN_HOUR
        let_go.set()
        await eventually(lambda: all_in(notifications, {held}, "SENT"))
        assert ledger.requests == dict.fromkeys([*sent, held], 1)
        gates = await notifications.connection.fetchval("SELECT max(opens_at) - now() FROM notifyqueue.recipient_gates")
        assert timedelta(minutes=58) < gates <= timedelta(hours=1, seconds=1)


def logged_at(line: Mapping[str, str]) -> datetime:
    return datetime.fromisoformat(line["timestamp"])


async def all_in(notifications: Notifications, ids: set[UUID], status: str) -> bool:
    return {await notifications.status(id_) for id_ in ids} == {status}


async def is_waiting(notifications: Notifications, count: int) -> bool:
    return await waiting(notifications) == count


async def lease_left(notifications: Notifications, id_: UUID) -> timedelta:
    left: timedelta = await notifications.connection.fetchval(
        "SELECT lease_expires_at - now() FROM notifyqueue.notifications WHERE id = $1", id_
    )
    assert left > timedelta()
    return left
