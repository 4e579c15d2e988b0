"""A worker that dies, or is asked to end, at the worst moment."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.conftest import login
from tests.mail_server import MailServer, mail_server
from tests.notifications import Notifications
from tests.processes import QUICK, Running, environment, running
from tests.waiting import eventually


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def worker_settings(url: str, mails: MailServer, **more: object) -> dict[str, str]:
    smtp = {"SMTP_HOST": "127.0.0.1", "SMTP_PORT": mails.port, "SMTP_TLS": "none", "SMTP_SENDER": "us@example.com"}
    return environment(login(url, "worker"), **{**QUICK, **smtp, **more})


async def test_killed_between_the_answer_and_the_record_it_is_sent_again_under_the_same_key(
    database_url: str, notifications: Notifications, folder: Path
) -> None:
    victims: list[Running] = []

    async def stop_the_victim() -> None:
        for victim in victims:  # it will have the answer, and never read it
            victim.send(signal.SIGSTOP)

    def kill_the_victim() -> None:
        while victims:
            victims.pop().send(signal.SIGKILL)

    async with mail_server(stop_the_victim, kill_the_victim) as mails:
        settings = worker_settings(database_url, mails)
        async with running("services.worker", folder, settings) as first:
            await first.logged("process.ready")
            victims.append(first)
            id_ = await notifications.insert("killed")
            assert await first.wait() == -signal.SIGKILL
        assert await notifications.status(id_) == "PROCESSING"

        async with running("services.worker", folder, settings) as second:

            async def sent() -> bool:
                return await notifications.status(id_) == "SENT"

            await eventually(sent, within=60)
            assert second.alive
    row = await notifications.get(id_)
    (unknown,) = await notifications.history(id_)
    assert (unknown["kind"], unknown["attempt"], unknown["provider_code"]) == ("ATTEMPT_UNKNOWN", 1, "lease_expired")
    assert (row["attempt_count"], row["expiries"]) == (2, 1)
    assert len(mails.message_ids) == 2
    assert len(set(mails.message_ids)) == 1
    assert str(id_) in mails.message_ids[0]
    assert await notifications.events(id_) == ["SENT"]


async def test_asked_to_end_it_finishes_what_runs_and_claims_nothing_more(
    database_url: str, notifications: Notifications, folder: Path
) -> None:
    held, answer = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        held.set()
        await answer.wait()

    settings = {"LEASE": 60, "EMAIL_PROVIDER_TIMEOUT": 30}
    async with (
        mail_server(hold) as mails,
        running("services.worker", folder, worker_settings(database_url, mails, **settings)) as worker,
    ):
        running_one = await notifications.insert("running")
        await held.wait()
        worker.send(signal.SIGTERM)
        await worker.logged("process.stopping")
        later = await notifications.insert("later")
        answer.set()
        assert await worker.wait() == 0
    assert [line["event"] for line in worker.events()][-2:] == ["worker.drained", "process.stopped"]
    assert await notifications.status(running_one) == "SENT"
    assert await notifications.status(later) == "PENDING"


async def test_asked_to_end_it_leaves_what_does_not_end_to_its_lease(
    database_url: str, notifications: Notifications, folder: Path
) -> None:
    held, never = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        held.set()
        await never.wait()

    settings = {"LEASE": 60, "EMAIL_PROVIDER_TIMEOUT": 30, "SHUTDOWN_TIMEOUT": 0.5}
    async with (
        mail_server(hold) as mails,
        running("services.worker", folder, worker_settings(database_url, mails, **settings)) as worker,
    ):
        id_ = await notifications.insert("hanging")
        await held.wait()
        worker.send(signal.SIGTERM)
        assert await worker.wait() == 0
        never.set()
    assert [line["event"] for line in worker.events()][-2:] == ["worker.drain_timeout", "process.stopped"]
    assert await notifications.status(id_) == "PROCESSING"
