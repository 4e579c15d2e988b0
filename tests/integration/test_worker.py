"""A worker on a real database: what it claims, what it records, and what it never does."""

import asyncio
import tracemalloc
from contextlib import AsyncExitStack
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
import structlog

from services.worker.providers import Answer, Outcome
from services.worker.store import Store
from shared.database import Database
from tests.integration.conftest import StartWorker
from tests.notifications import Notifications
from tests.providers import ScriptedProvider
from tests.waiting import eventually


@pytest.fixture
def provider() -> ScriptedProvider:
    return ScriptedProvider()


async def ended(notifications: Notifications, id_: UUID) -> bool:
    return await notifications.status(id_) not in ("PENDING", "PROCESSING")


async def test_what_is_due_is_sent_once_with_one_event(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    ids = await notifications.insert_many(200)
    await start_worker(database_url, provider)

    async def all_sent() -> bool:
        return await notifications.statuses() == {"SENT": 200}

    await eventually(all_sent)
    assert provider.requests == dict.fromkeys(ids, 1)
    assert [await notifications.events(id_) for id_ in ids] == [["SENT"]] * 200
    row = await notifications.get(ids[0])
    assert (row["attempt_count"], row["provider_message_id"], row["claim_token"]) == (1, "m-1", None)
    assert not await notifications.history(ids[0])


BACKLOG, EACH = 5_000, 10_000  # notifications, and characters of what each says
FILL = """
WITH new AS (
  INSERT INTO notifyqueue.notifications (
    tenant_id, idempotency_key, fingerprint, channel, address, priority, max_attempts, due_at, next_attempt_at
  )
  SELECT 'default', n::text, '', 'EMAIL', 'a@example.com', 2, 5, now(), now()
  FROM generate_series(1, $1::int) AS n
  RETURNING id
)
INSERT INTO notifyqueue.notification_contents
SELECT new.id, jsonb_build_object('subject', 's', 'text', repeat('x', $2::int))
FROM new
"""


async def test_a_worker_holds_what_it_has_room_for_however_much_waits(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    await notifications.connection.execute(FILL, BACKLOG, EACH)
    provider.gate.clear()
    tracemalloc.start()
    try:
        await start_worker(database_url, provider)
        await eventually(lambda: provider.at_once >= 64)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(provider.seen) == 64
    assert peak < BACKLOG * EACH / 10


async def test_one_claim_takes_at_most_half_of_a_lane(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    await notifications.connection.execute(FILL, 100, 10)
    provider.gate.clear()
    await start_worker(database_url, provider)
    await eventually(lambda: provider.at_once >= 64)
    claims = await notifications.connection.fetch(
        "SELECT count(*) AS size FROM notifyqueue.notifications WHERE status = 'PROCESSING' GROUP BY claim_token"
    )
    assert [claim["size"] for claim in claims] == [32, 32]


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        (Answer.PERMANENT_MESSAGE, "FAILED", "MESSAGE_REJECTED"),
        (Answer.PERMANENT_ADDRESS, "FAILED", "ADDRESS_REJECTED"),
    ],
)
async def test_a_refusal_ends_it_on_the_first_attempt(
    notifications: Notifications,
    start_worker: StartWorker,
    provider: ScriptedProvider,
    database_url: str,
    answer: Answer,
    status: str,
    reason: str,
) -> None:
    id_ = await notifications.insert("refused", address="no@example.com")
    provider.script("no@example.com", Outcome(answer, code="550-5.1.1"))
    await start_worker(database_url, provider)
    await eventually(lambda: ended(notifications, id_))
    row = await notifications.get(id_)
    assert (row["status"], row["failure_reason"], row["provider_code"]) == (status, reason, "550-5.1.1")
    assert await notifications.events(id_) == [status]
    assert [entry["kind"] for entry in await notifications.history(id_)] == ["ATTEMPT_FAILED"]


async def test_what_keeps_failing_is_dead_lettered_at_its_cap(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    id_ = await notifications.insert("failing", address="down@example.com", max_attempts=3)
    provider.script("down@example.com", *[Outcome(Answer.TRANSIENT, code="451")] * 3)
    await start_worker(database_url, provider)
    await eventually(lambda: ended(notifications, id_))
    row = await notifications.get(id_)
    assert (row["status"], row["failure_reason"], row["attempt_count"]) == ("DEAD_LETTERED", "ATTEMPTS_EXHAUSTED", 3)
    assert [entry["attempt"] for entry in await notifications.history(id_)] == [1, 2, 3]
    assert provider.requests[id_] == 3


async def test_an_attempt_without_an_answer_at_the_cap_gets_one_reconciliation(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    id_ = await notifications.insert("unknown", address="hangs@example.com", max_attempts=1)
    provider.script("hangs@example.com", *[Outcome(Answer.UNKNOWN, code="timeout")] * 3)
    await start_worker(database_url, provider)
    await eventually(lambda: ended(notifications, id_))
    row = await notifications.get(id_)
    assert (row["status"], row["attempt_count"], row["max_attempts"]) == ("DEAD_LETTERED", 2, 2)
    assert [entry["kind"] for entry in await notifications.history(id_)] == ["ATTEMPT_UNKNOWN"] * 2


async def test_at_most_once_is_never_tried_again_once_it_may_have_been_delivered(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    id_ = await notifications.insert("once", address="hangs@example.com", at_most_once=True)
    provider.script("hangs@example.com", Outcome(Answer.UNKNOWN, code="timeout"))
    await start_worker(database_url, provider)
    await eventually(lambda: ended(notifications, id_))
    row = await notifications.get(id_)
    assert (row["status"], row["failure_reason"]) == ("FAILED", "OUTCOME_UNKNOWN")
    assert row["started_at"] is not None
    assert provider.requests[id_] == 1


async def test_throttling_costs_no_attempt(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    id_ = await notifications.insert("throttled", address="busy@example.com", max_attempts=1)
    provider.script("busy@example.com", *[Outcome(Answer.THROTTLED, code="429")] * 3)
    await start_worker(database_url, provider)
    await eventually(lambda: ended(notifications, id_))
    row = await notifications.get(id_)
    assert (row["status"], row["attempt_count"]) == ("SENT", 1)
    assert provider.requests[id_] == 4


async def test_an_adapter_that_raises_after_the_handover_leaves_the_outcome_unknown(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    id_ = await notifications.insert("raises", address="raises@example.com")
    provider.script("raises@example.com", ValueError("someone@example.com said no"))
    await start_worker(database_url, provider)
    await eventually(lambda: ended(notifications, id_))
    assert [(e["kind"], e["provider_code"]) for e in await notifications.history(id_)] == [
        ("ATTEMPT_UNKNOWN", "adapter_error")
    ]


async def test_what_expired_is_not_sent(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    past = timedelta(hours=-2)
    id_ = await notifications.insert("late", due_in=past)
    unsure = await notifications.insert("unsure", due_in=past, maybe_delivered=True)
    await notifications.connection.execute("UPDATE notifyqueue.notifications SET expire_at = now() - interval '1 hour'")
    await start_worker(database_url, provider)
    await eventually(lambda: ended(notifications, id_))
    await eventually(lambda: ended(notifications, unsure))
    row, other = await notifications.get(id_), await notifications.get(unsure)
    assert (row["status"], row["attempt_count"]) == ("EXPIRED", 0)
    assert (other["status"], other["failure_reason"]) == ("FAILED", "OUTCOME_UNKNOWN")
    assert not provider.seen


async def test_erased_content_ends_it_before_any_call(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    id_ = await notifications.insert("erased")
    await notifications.connection.execute("DELETE FROM notifyqueue.notification_contents")
    await start_worker(database_url, provider)
    await eventually(lambda: ended(notifications, id_))
    row = await notifications.get(id_)
    assert (row["status"], row["failure_reason"], row["attempt_count"]) == ("FAILED", "CONTENT_ERASED", 0)
    assert not provider.seen


async def test_a_lane_sleeps_until_the_next_one_is_due(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    await start_worker(database_url, provider, poll_interval=3600.0)
    id_ = await notifications.insert("soon", due_in=timedelta(seconds=1))
    await notifications.connection.execute("NOTIFY notifyqueue_lane_email")
    await eventually(lambda: ended(notifications, id_))
    row = await notifications.get(id_)
    assert row["finished_at"] >= row["due_at"]


async def test_a_drain_gives_nothing_new_out_and_lets_what_runs_end(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    provider.gate.clear()
    first = await notifications.insert("first")
    worker = await start_worker(database_url, provider)

    async def on_the_wire() -> bool:
        return bool(provider.seen)

    await eventually(on_the_wire)
    await worker.drain(0.05)
    assert worker.phase == "DRAINING"
    second = await notifications.insert("second")
    provider.gate.set()
    await worker.drain(10)
    assert worker.phase == "DRAINED"
    assert await notifications.status(first) == "SENT"
    assert await notifications.status(second) == "PENDING"
    worker.resume()
    await eventually(lambda: ended(notifications, second))


async def test_a_resume_ends_the_drains_that_wait(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    provider.gate.clear()
    first = await notifications.insert("first")
    worker = await start_worker(database_url, provider, email_provider_timeout=60.0, lease=120.0)
    await eventually(lambda: len(provider.seen) == 1)
    with structlog.testing.capture_logs() as logged:
        drains = [asyncio.create_task(worker.drain(3600)) for _ in range(2)]
        await eventually(lambda: worker.draining)
        worker.resume()
        await asyncio.wait_for(asyncio.gather(*drains), 10)  # what they waited for is still on the wire
        second = await notifications.insert("second")
        worker.wake()
        await eventually(lambda: len(provider.seen) == 2)
        assert worker.phase == "RUNNING"
        provider.gate.set()
        await eventually(lambda: ended(notifications, first))
        await eventually(lambda: ended(notifications, second))
        await eventually(lambda: worker.in_flight == 0)
    assert "worker.drained" not in {line["event"] for line in logged}


async def test_leaving_breaks_off_what_does_not_end_and_leaves_it_to_its_lease(
    notifications: Notifications, start_worker: StartWorker, provider: ScriptedProvider, database_url: str
) -> None:
    provider.gate.clear()
    id_ = await notifications.insert("stuck")

    async def on_the_wire() -> bool:
        return bool(provider.seen)

    async with AsyncExitStack() as leaving:
        await start_worker(database_url, provider, on=leaving, shutdown_timeout=0.1)
        await eventually(on_the_wire)
    assert await notifications.status(id_) == "PROCESSING"

    provider.gate.set()
    await start_worker(database_url, provider)
    await eventually(lambda: ended(notifications, id_))
    assert [entry["kind"] for entry in await notifications.history(id_)] == ["ATTEMPT_UNKNOWN"]
    assert await notifications.events(id_) == ["SENT"]


async def test_a_claim_whose_answer_was_cut_off_is_given_back(notifications: Notifications, database_url: str) -> None:
    id_ = await notifications.insert("cut off")
    token, worker_id = uuid4(), uuid4()
    async with Database(database_url, name="test") as database:
        store = Store(database)
        claims = await store.claim_due(
            "EMAIL",
            limit=1,
            classes=(3, 2, 1),
            due_for=timedelta(),
            token=token,
            worker_id=worker_id,
            lease=timedelta(minutes=1),
            take_suspect=True,
        )
        assert len(claims) == 1
        assert await store.release_token(token, worker_id) == 1
    row = await notifications.get(id_)
    assert (row["status"], row["attempt_count"]) == ("PENDING", 0)
