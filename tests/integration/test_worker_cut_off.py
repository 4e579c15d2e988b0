"""A worker whose connection is cut while the database's answer is on its way: what was carried out is not lost."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import structlog
from pydantic import SecretStr

from services.worker.providers import Answer, Outcome
from tests.conftest import login
from tests.integration.conftest import StartWorker
from tests.notifications import Notifications
from tests.providers import ScriptedProvider
from tests.waiting import eventually
from tests.wiretap import Wiretap, cut, wiretap

ADDRESS = "cut-off@example.com"


@pytest.fixture
async def wire(database_url: str) -> AsyncIterator[Wiretap]:
    async with wiretap(database_url) as wire:
        yield wire


@pytest.fixture
def tapped(wire: Wiretap, database_url: str) -> dict[str, Any]:
    """Settings of a worker, but for its database's URL."""
    return {"listen_database_url": SecretStr(login(database_url, "worker")), "lease": 60.0}


async def test_a_claim_whose_answer_was_cut_off_is_given_back_by_its_token_and_costs_nothing(
    notifications: Notifications, start_worker: StartWorker, wire: Wiretap, tapped: dict[str, Any], database_url: str
) -> None:
    provider = ScriptedProvider()
    wire.answers.watch(ADDRESS.encode(), cut)
    ids = [await notifications.insert(f"cut-{number}", address=ADDRESS) for number in range(5)]
    with structlog.testing.capture_logs() as logged:
        await start_worker(wire.url(database_url), provider, **tapped)
        await eventually(lambda: all_ended(notifications))
    released = [line["count"] for line in logged if line["event"] == "job.released"]
    assert released == [5]
    assert provider.requests == dict.fromkeys(ids, 1)
    for id_ in ids:
        row = await notifications.get(id_)
        assert (row["status"], row["attempt_count"], row["expiries"]) == ("SENT", 1, 0)
        assert not await notifications.history(id_)


@pytest.mark.parametrize(
    ("outcome", "mark", "status", "kinds"),
    [
        (Outcome(Answer.ACCEPTED, provider_message_id="m-cut"), b"m-cut", "SENT", []),
        (Outcome(Answer.PERMANENT_MESSAGE, "550-cut"), b"550-cut", "FAILED", ["ATTEMPT_FAILED"]),
        (Outcome(Answer.TRANSIENT, "451-cut"), b"451-cut", "SENT", ["ATTEMPT_FAILED"]),
    ],
    ids=["completion", "refusal", "retry"],
)
async def test_a_record_whose_answer_was_cut_off_is_written_once_and_not_called_lost(
    notifications: Notifications,
    start_worker: StartWorker,
    wire: Wiretap,
    tapped: dict[str, Any],
    database_url: str,
    outcome: Outcome,
    mark: bytes,
    status: str,
    kinds: list[str],
) -> None:
    provider = ScriptedProvider()
    provider.script(ADDRESS, outcome)
    id_ = await notifications.insert("recorded", address=ADDRESS)

    async def cut_the_answer() -> None:
        wire.answers.watch(id_.bytes, cut)

    wire.questions.watch(mark, cut_the_answer)
    with structlog.testing.capture_logs() as logged:
        worker = await start_worker(wire.url(database_url), provider, **tapped)
        await eventually(lambda: all_ended(notifications))
        await worker.drain(10)
    events = [line["event"] for line in logged]
    assert "record.repeated" in events
    assert "job.claim_lost" not in events
    assert worker.lanes["EMAIL"].totals.claims_lost == 0
    assert await notifications.events(id_) == [status]
    assert [entry["kind"] for entry in await notifications.history(id_)] == kinds
    assert provider.requests[id_] == (await notifications.get(id_))["attempt_count"] == 1 + (mark == b"451-cut")


async def all_ended(notifications: Notifications) -> bool:
    return not {"PENDING", "PROCESSING"} & (await notifications.statuses()).keys()
