"""A dispatcher that dies, or is asked to end, while a post is under way."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import web

from tests.conftest import login
from tests.integration.test_dispatcher_rig import Receiver, Rig, accept, hang
from tests.processes import environment, ready, running
from tests.waiting import eventually

MODULE = "services.dispatcher"
SERVICE = "notifyqueue.v1.WebhookDispatcher"


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def rig(database_url: str, stack: AsyncExitStack) -> Rig:
    return await Rig.open(stack, database_url)


@pytest.fixture
async def receiver(stack: AsyncExitStack) -> Receiver:
    return await stack.enter_async_context(Receiver())


def settings(rig: Rig, **more: object) -> dict[str, str]:
    brief = {"WEBHOOK_ALLOW_ADDRESSES": "127.0.0.1/32", "WEBHOOK_TIMEOUT": 0.9, "LEASE": 6, "POLL_INTERVAL": 0.5}
    return environment(login(rig.url, "dispatcher"), **{**brief, **more})


async def test_killed_while_a_post_is_under_way_it_is_posted_again_when_its_lease_ends(
    rig: Rig, receiver: Receiver, tmp_path: Path
) -> None:
    (delivery,) = await rig.deliveries(1, await rig.endpoint(receiver.url))
    async with running(MODULE, tmp_path, settings(rig)) as victim:

        async def kill(_: web.Request) -> web.StreamResponse:
            receiver.respond = accept
            victim.send(signal.SIGKILL)
            return web.Response()

        receiver.respond = kill
        assert await victim.wait() == -signal.SIGKILL
    async with running(MODULE, tmp_path, settings(rig)):
        await receiver.received(2)
        await eventually(lambda: rig.value("SELECT delivered_at IS NOT NULL FROM notifyqueue.webhook_deliveries"))
    assert await rig.attempts(delivery) == [(1, None, "LEASE_LOST"), (2, 204, None)]
    assert len(set(receiver.ids())) == 1


async def test_asked_to_end_it_lets_posts_end_and_records_them(rig: Rig, receiver: Receiver, tmp_path: Path) -> None:
    never = asyncio.Event()
    receiver.respond = hang(never)
    await rig.deliveries(8, await rig.endpoint(receiver.url))
    patient = settings(rig, WEBHOOK_TIMEOUT=30, LEASE=60, WEBHOOK_ENDPOINT_CONCURRENCY=3)
    async with running(MODULE, tmp_path, patient) as process:
        await ready(f"127.0.0.1:{await process.port()}", SERVICE)
        await receiver.received(3)
        process.send(signal.SIGTERM)
        await process.logged("dispatcher.draining")
        never.set()
        assert await process.wait() == 0
        assert not [line for line in process.events() if line["level"] == "error"]
    assert len(receiver.posts) == 3
    counts = await rig.fetch(
        "SELECT count(delivered_at) AS delivered, count(claim_token) AS claimed FROM notifyqueue.webhook_deliveries"
    )
    assert dict(counts[0]) == {"delivered": 3, "claimed": 0}


async def test_a_post_that_outlasts_the_shutdown_is_left_to_its_lease(
    rig: Rig, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.respond = hang(asyncio.Event())
    (delivery,) = await rig.deliveries(1, await rig.endpoint(receiver.url))
    stubborn = settings(rig, WEBHOOK_TIMEOUT=30, LEASE=60, SHUTDOWN_TIMEOUT=0.1)
    async with running(MODULE, tmp_path, stubborn) as process:
        await receiver.received(1)
        process.send(signal.SIGTERM)
        assert await process.wait() == 0
    row = await rig.delivery(delivery)
    assert (row["delivered_at"], row["given_up_at"], await rig.attempts(delivery)) == (None, None, [])
    assert row["claim_token"] is not None


async def test_settings_that_cannot_work_end_the_process_before_it_starts(rig: Rig, tmp_path: Path) -> None:
    async with running(MODULE, tmp_path, settings(rig, LEASE=5)) as process:
        assert await process.wait() == 78
        assert "NOTIFYQUEUE_LEASE: must be more than" in process.output()


async def test_it_starts_without_its_database_and_dispatches_when_that_is_there(
    rig: Rig, receiver: Receiver, tmp_path: Path
) -> None:
    await rig.deliveries(1, await rig.endpoint(receiver.url))
    name = await rig.value("SELECT current_database()")
    away = rig.url.rsplit("/", 1)[0] + "/postgres"
    async with AsyncExitStack() as stack:
        owner = await Rig.open(stack, away)
        await owner.fetch("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = $1", name)
        await owner.execute(f"ALTER DATABASE {name} RENAME TO {name}_away")
        async with running(MODULE, tmp_path, settings(rig)) as process:
            await process.logged("loop.failed")
            await owner.execute(f"ALTER DATABASE {name}_away RENAME TO {name}")
            await receiver.received(1)
            assert process.alive
