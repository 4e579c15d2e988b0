"""Draining real processes: what has not started is back at once, what runs ends, what was begun is finished."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import grpc.aio
import pytest

from notifyqueue.v1 import process_pb2, worker_pb2
from notifyqueue.v1.worker_pb2_grpc import WorkerStub
from tests.command_line import finished, started
from tests.conftest import login
from tests.integration.test_dispatcher_rig import Rig
from tests.ledger import Call, Ledger, open_ledger
from tests.notifications import Notifications
from tests.processes import QUICK, Running, environment, running
from tests.waiting import eventually
from tests.wiretap import Hold, Wiretap, wiretap

PATIENT = {**QUICK, "LEASE": "60", "EMAIL_PROVIDER_TIMEOUT": "30"}
DRAINING, DRAINED = process_pb2.PROCESS_PHASE_DRAINING, process_pb2.PROCESS_PHASE_DRAINED


@pytest.fixture
async def ledger() -> AsyncIterator[Ledger]:
    async with open_ledger() as ledger:
        yield ledger


@pytest.fixture
async def wire(database_url: str) -> AsyncIterator[Wiretap]:
    async with wiretap(database_url) as wire:
        yield wire


class Busy:
    """A worker with one attempt under way, and five claims that it has not been told of yet."""

    def __init__(self, worker: Running, notifications: Notifications, ledger: Ledger) -> None:
        self.worker = worker
        self.answer = asyncio.Event()
        self._notifications = notifications
        self._ledger = ledger

    async def begin(self, wire: Wiretap) -> None:
        async def hold(call: Call) -> None:
            await self.answer.wait()

        self._ledger.before_answer = hold
        self.running = await self._notifications.insert("running", address="running@example.com")
        await eventually(lambda: self._ledger.made_by("worker") == [self.running])
        self._claim: Hold = wire.answers.hold(b"unstarted@example.com")
        async with self._notifications.connection.transaction():
            self.unstarted = [
                await self._notifications.insert(
                    f"unstarted-{number}", address="unstarted@example.com", at_most_once=number < 2
                )
                for number in range(5)
            ]
            await self._notifications.connection.execute("NOTIFY notifyqueue_lane_email")
        await self._claim.caught.wait()
        assert await self._notifications.statuses() == {"PROCESSING": 6}

    async def give_back(self) -> None:
        """What has not started is back, as if it had not been claimed, while the other one has no answer yet."""
        self._claim.let_go()
        await eventually(self._all_back)
        assert await self._notifications.status(self.running) == "PROCESSING"

    async def _all_back(self) -> bool:
        back = await self._notifications.connection.fetchval(
            "SELECT count(*) FROM notifyqueue.notifications WHERE id = ANY ($1) AND status = 'PENDING'"
            " AND attempt_count = 0 AND next_attempt_at <= now() AND claim_token IS NULL AND started_at IS NULL",
            self.unstarted,
        )
        return bool(back == len(self.unstarted))


@pytest.fixture
async def busy(
    database_url: str, notifications: Notifications, ledger: Ledger, wire: Wiretap, tmp_path: Path
) -> AsyncIterator[Busy]:
    url = login(database_url, "worker")
    settings = environment(url, **{**PATIENT, **wire.settings(url), **ledger.settings("worker")})
    async with running("services.worker", tmp_path, settings) as worker:
        await worker.logged("process.ready")
        busy = Busy(worker, notifications, ledger)
        await busy.begin(wire)
        yield busy


async def test_on_sigterm_what_has_not_started_is_back_before_any_running_attempt_has_ended(
    busy: Busy, notifications: Notifications, ledger: Ledger
) -> None:
    busy.worker.send(signal.SIGTERM)
    await busy.worker.logged("process.stopping")
    await busy.give_back()
    busy.answer.set()
    assert await busy.worker.wait() == 0
    assert [line["event"] for line in busy.worker.events()][-2:] == ["worker.drained", "process.stopped"]
    assert await notifications.statuses() == {"SENT": 1, "PENDING": 5}
    assert ledger.made_by("worker") == [busy.running]


async def test_a_drain_goes_on_when_who_asked_for_it_presses_ctrl_c_and_a_resume_takes_up_again(
    busy: Busy, notifications: Notifications, ledger: Ledger
) -> None:
    address = f"127.0.0.1:{await busy.worker.port()}"
    async with grpc.aio.insecure_channel(address) as channel:
        stub = WorkerStub(channel)

        async def is_in(phase: int) -> bool:
            return (await stub.GetWorkerStatus(worker_pb2.GetWorkerStatusRequest())).worker.phase == phase

        async with started("drain", "worker", "--timeout", "60s", "--address", address) as client:
            await eventually(lambda: is_in(DRAINING))
            client.send_signal(signal.SIGINT)
            assert (await finished(client)).code == 130
        await busy.give_back()
        busy.answer.set()
        await busy.worker.logged("worker.drained")  # by the drain that was left behind
        assert await is_in(DRAINED)
        assert await notifications.statuses() == {"SENT": 1, "PENDING": 5}
        assert ledger.made_by("worker") == [busy.running]
        assert busy.worker.alive

        await stub.ResumeWorker(worker_pb2.ResumeWorkerRequest())
        await eventually(lambda: all_sent(notifications))
    assert ledger.requests == dict.fromkeys([busy.running, *busy.unstarted], 1)


async def all_sent(notifications: Notifications) -> bool:
    return (await notifications.statuses()).keys() == {"SENT"}


async def expired_claim(notifications: Notifications) -> UUID:
    return await notifications.insert(
        "lost",
        status="PROCESSING",
        attempt_count=1,
        claim_token=uuid4(),
        worker_id=uuid4(),
        lease_expires_at=datetime.now(UTC) - timedelta(hours=1),
    )


async def test_a_sweep_that_was_begun_is_finished_before_the_pool_is_closed(
    database_url: str, notifications: Notifications, ledger: Ledger, wire: Wiretap, tmp_path: Path
) -> None:
    id_ = await expired_claim(notifications)
    sweep = wire.questions.hold(b"lease_expired")
    url = login(database_url, "worker")
    settings = environment(url, **{**QUICK, **wire.settings(url), **ledger.settings("worker")})
    async with running("services.worker", tmp_path, settings) as worker:
        await sweep.caught.wait()
        worker.send(signal.SIGTERM)
        await worker.logged("worker.drained")
        assert await notifications.status(id_) == "PROCESSING"
        sweep.let_go()
        assert await worker.wait() == 0
    assert [line["event"] for line in worker.events()][-3:] == [*("job.recovered", "jobs.recovered", "process.stopped")]
    assert await notifications.status(id_) == "PENDING"
    assert [entry["kind"] for entry in await notifications.history(id_)] == ["ATTEMPT_UNKNOWN"]


async def test_a_fan_out_that_was_begun_is_finished_before_the_pool_is_closed(
    database_url: str, wire: Wiretap, tmp_path: Path
) -> None:
    fan_out = wire.questions.hold(b"-- fan_out_events:")
    url = login(database_url, "dispatcher")
    async with AsyncExitStack() as stack:
        rig = await Rig.open(stack, database_url)
        await rig.endpoint()
        await rig.events(3)
        settings = environment(url, **wire.settings(url))
        dispatcher = await stack.enter_async_context(running("services.dispatcher", tmp_path, settings))
        await fan_out.caught.wait()
        dispatcher.send(signal.SIGTERM)
        await dispatcher.logged("dispatcher.draining")
        fan_out.let_go()
        assert await dispatcher.wait() == 0
        assert dispatcher.events()[-1]["event"] == "process.stopped"
        assert not [line for line in dispatcher.events() if line["level"] in ("warning", "error")]
        assert await rig.value("SELECT count(*) FROM notifyqueue.webhook_deliveries WHERE claim_token IS NULL") == 3
