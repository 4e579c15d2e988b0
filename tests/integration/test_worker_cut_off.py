"""A worker whose connection is cut while the database's answer is on its way: what was carried out is not lost."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import structlog
from pydantic import SecretStr

from services.worker.providers import Answer, Outcome
from services.worker.store import Store
from shared.errors import DatabaseUnavailable
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


@pytest.mark.parametrize(
    ("what", "status"), [("expire", "EXPIRED"), ("suppress", "SUPPRESSED"), ("release", "PENDING")]
)
async def test_what_was_recorded_without_a_call_is_not_called_lost_when_its_answer_was_cut_off(
    notifications: Notifications,
    start_worker: StartWorker,
    wire: Wiretap,
    tapped: dict[str, Any],
    database_url: str,
    what: str,
    status: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    provider = ScriptedProvider()
    past = timedelta(hours=-2) if what == "expire" else timedelta()
    id_ = await notifications.insert("unmade", address=ADDRESS, due_in=past, at_most_once=what == "release")
    if what == "expire":
        await notifications.connection.execute(
            "UPDATE notifyqueue.notifications SET expire_at = now() - interval '1 hour'"
        )
    elif what == "suppress":
        await suppress(notifications)
    else:
        monkeypatch.setattr(Store, "start_attempts", refuse)  # the fence fails: it goes back

    async def cut_the_answer() -> None:
        wire.answers.watch(id_.bytes, cut)

    wire.questions.watch(id_.bytes, cut_the_answer)  # its record: no other statement before it names the id
    with structlog.testing.capture_logs() as logged:
        worker = await start_worker(wire.url(database_url), provider, **tapped)
        await eventually(lambda: "record.repeated" in [line["event"] for line in logged])
        await worker.drain(10)
    assert "job.claim_lost" not in [line["event"] for line in logged]
    assert worker.lanes["EMAIL"].totals.claims_lost == 0
    assert not provider.seen
    row = await notifications.get(id_)
    assert (row["status"], row["attempt_count"]) == (status, 0)
    assert not await notifications.history(id_)


async def refuse(*_: object) -> set[UUID]:
    raise DatabaseUnavailable


async def suppress(notifications: Notifications) -> None:
    await notifications.connection.execute(
        "INSERT INTO notifyqueue.suppressions (tenant_id, channel, address, category, source)"
        " VALUES ('default', 'EMAIL', $1, '', 'OPTED_OUT')",
        ADDRESS,
    )


async def all_ended(notifications: Notifications) -> bool:
    return not {"PENDING", "PROCESSING"} & (await notifications.statuses()).keys()
