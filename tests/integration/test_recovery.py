"""Claims whose worker is gone: what the sweep makes of them, and whom it leaves alone."""

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest
import structlog

from services.worker.claim import Claim
from services.worker.leases import Leases
from services.worker.outcome import Ended, Later, Sent
from services.worker.recovery import Recovery
from services.worker.store import Record, WorkerStore
from shared.backoff import Backoff
from shared.database import Database
from shared.logs import name_span
from shared.telemetry import traces
from tests.conftest import login
from tests.notifications import Notifications
from tests.spans import told as told_spans

LEASE = timedelta(minutes=1)
BACKOFF = Backoff(timedelta(seconds=2), timedelta(minutes=15))


class Settled(Leases):
    """Those of a worker that has long been there."""

    unsettled = False


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[WorkerStore]:
    async with Database(login(database_url, "worker"), name="test") as database:
        yield WorkerStore(database)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def recovery(store: WorkerStore, told: list[str]) -> Recovery:
    # The test's server is younger than a lease of a minute.
    leases = Settled(store, lease=LEASE, held=list, on_lost=lambda _: None)
    return Recovery(
        store,
        leases,
        lease=timedelta(),
        backoff=BACKOFF,
        on_end=lambda: told.append("end"),
        on_retry=lambda channel, _: told.append(channel),
    )


async def claim(store: WorkerStore, *, limit: int = 64, suspects: bool = True) -> list[Claim]:
    return await store.claim_due(
        "EMAIL",
        limit=limit,
        classes=(3, 2, 1),
        due_for=timedelta(),
        token=uuid4(),
        worker_id=uuid4(),
        lease=LEASE,
        take_suspect=suspects,
    )


async def let_leases_pass(notifications: Notifications) -> None:
    await notifications.connection.execute(
        "UPDATE notifyqueue.notifications SET lease_expires_at = now() - interval '1 second' "
        "WHERE status = 'PROCESSING'"
    )


async def make_due(notifications: Notifications) -> None:
    await notifications.connection.execute(
        "UPDATE notifyqueue.notifications SET next_attempt_at = now() WHERE status = 'PENDING'"
    )


async def test_an_expired_claim_is_an_attempt_without_an_answer(
    notifications: Notifications, store: WorkerStore, recovery: Recovery, told: list[str]
) -> None:
    id_ = await notifications.insert("lost")
    (held,) = await claim(store)
    await let_leases_pass(notifications)
    await recovery.sweep()
    row = await notifications.get(id_)
    assert (row["status"], row["attempt_count"], row["expiries"], row["maybe_delivered"]) == ("PENDING", 1, 1, True)
    (entry,) = await notifications.history(id_)
    assert (entry["kind"], entry["attempt"], entry["claim_token"]) == ("ATTEMPT_UNKNOWN", 1, held.claim_token)
    assert entry["retry_delay"] >= timedelta(seconds=1)
    assert told == ["EMAIL"]


async def test_a_lease_that_runs_is_left_alone(
    notifications: Notifications, store: WorkerStore, recovery: Recovery
) -> None:
    id_ = await notifications.insert("held")
    await claim(store)
    await recovery.sweep()
    assert await notifications.status(id_) == "PROCESSING"


async def test_the_last_attempt_is_reconciled_once_and_then_dead_lettered(
    notifications: Notifications, store: WorkerStore, recovery: Recovery
) -> None:
    id_ = await notifications.insert("last", max_attempts=1)
    for status in ("PENDING", "DEAD_LETTERED"):
        assert len(await claim(store)) == 1
        await let_leases_pass(notifications)
        await recovery.sweep()
        assert await notifications.status(id_) == status
        await make_due(notifications)
    row = await notifications.get(id_)
    assert (row["failure_reason"], row["attempt_count"], row["max_attempts"]) == ("WORKER_LOST", 2, 2)
    assert await notifications.events(id_) == ["DEAD_LETTERED"]
    assert not await claim(store)


async def test_what_a_lost_worker_held_is_told_with_its_trace_and_what_stands_for_its_address(
    notifications: Notifications, store: WorkerStore, recovery: Recovery
) -> None:
    """Below whoever asked for it a moment ago, and linked to whoever asked before."""
    asked = {name: f"00-{number * 32}-{number * 16}-01" for name, number in (("now", "1"), ("before", "2"))}
    ids = {
        name: await notifications.insert(name, max_attempts=1, pseudonym="ab" * 16, trace_context=stored)
        for name, stored in asked.items()
    }
    await notifications.connection.execute(
        "UPDATE notifyqueue.notifications SET created_at = now() - interval '16 minutes' WHERE id = $1", ids["before"]
    )
    with told_spans() as found, structlog.testing.capture_logs(processors=[name_span]) as logged:
        for _ in range(2):
            assert len(await claim(store)) == 2
            await let_leases_pass(notifications)
            await recovery.sweep()
            await make_due(notifications)
    assert {span.facts["notifyqueue.outcome"] for span in found.spans} == {"ATTEMPT_UNKNOWN", "WORKER_LOST"}
    for name, id_ in ids.items():
        spans = [span for span in found.spans if span.facts["messaging.message.id"] == str(id_)]
        lines = [line for line in logged if line.get("notification_id") == str(id_)]
        assert [line["event"] for line in lines] == ["job.recovered", "job.recovered", "job.dead_letter"]
        told = [(line["address_hash"], line["trace_id"], line["span_id"]) for line in lines]
        first, last = (("ab" * 16, span.trace_id.hex(), span.span_id.hex()) for span in spans)
        assert told == [first, last, last]
        above = traces.received({"traceparent": asked[name]})
        of_now = name == "now"
        for span in spans:
            assert (span.parent, [*span.links]) == ((above, []) if of_now else (None, [above]))
        # The webhook of its end hangs on the span that ended it.
        assert (await notifications.get(id_))["last_trace_context"] == spans[1].text


async def test_at_most_once_ends_when_a_call_may_have_been_made(
    notifications: Notifications, store: WorkerStore, recovery: Recovery
) -> None:
    id_ = await notifications.insert("once", at_most_once=True)
    assert await store.start_attempts(await claim(store), LEASE) == {id_}
    await let_leases_pass(notifications)
    await recovery.sweep()
    row = await notifications.get(id_)
    assert (row["status"], row["failure_reason"]) == ("FAILED", "OUTCOME_UNKNOWN")


async def test_at_most_once_goes_back_refunded_when_no_call_was_made(
    notifications: Notifications, store: WorkerStore, recovery: Recovery
) -> None:
    id_ = await notifications.insert("once", at_most_once=True)
    await claim(store)
    await let_leases_pass(notifications)
    await recovery.sweep()
    row = await notifications.get(id_)
    assert (row["status"], row["attempt_count"], row["maybe_delivered"]) == ("PENDING", 0, False)
    assert not await notifications.history(id_)


async def test_what_may_have_been_delivered_does_not_expire(
    notifications: Notifications, store: WorkerStore, recovery: Recovery
) -> None:
    id_ = await notifications.insert("late")
    await claim(store)
    await notifications.connection.execute("UPDATE notifyqueue.notifications SET expire_at = due_at + interval '1 us'")
    await let_leases_pass(notifications)
    await recovery.sweep()
    row = await notifications.get(id_)
    assert (row["status"], row["failure_reason"]) == ("FAILED", "OUTCOME_UNKNOWN")


async def test_nothing_is_expired_for_one_lease_after_the_database_started(
    notifications: Notifications, store: WorkerStore
) -> None:
    await notifications.insert("held")
    await claim(store)
    await let_leases_pass(notifications)
    async with store.transaction() as transaction:
        assert not await transaction.lock_expired_claims(timedelta(days=1))
        assert len(await transaction.lock_expired_claims(timedelta())) == 1


async def test_a_worker_that_has_just_started_does_not_sweep_at_once(
    notifications: Notifications, store: WorkerStore
) -> None:
    id_ = await notifications.insert("held")
    await claim(store)
    await let_leases_pass(notifications)
    leases = Leases(store, lease=LEASE, held=list, on_lost=lambda _: None)
    recovery = Recovery(
        store, leases, lease=timedelta(), backoff=BACKOFF, on_end=lambda: None, on_retry=lambda *_: None
    )
    await recovery.sweep()
    assert await notifications.status(id_) == "PROCESSING"


async def test_a_row_that_somebody_holds_hides_no_other(
    notifications: Notifications, store: WorkerStore, recovery: Recovery
) -> None:
    first, second = await notifications.insert("first"), await notifications.insert("second")
    await claim(store)
    await let_leases_pass(notifications)
    async with notifications.connection.transaction():
        await notifications.connection.execute(
            "SELECT id FROM notifyqueue.notifications WHERE id = $1 FOR UPDATE", first
        )
        await recovery.sweep()
    assert [await notifications.status(id_) for id_ in (first, second)] == ["PROCESSING", "PENDING"]


async def test_a_late_worker_changes_nothing(
    notifications: Notifications, store: WorkerStore, recovery: Recovery
) -> None:
    id_ = await notifications.insert("late")
    (held,) = await claim(store)
    await let_leases_pass(notifications)
    await recovery.sweep()
    before = await notifications.get(id_)
    assert await store.renew_leases([held], LEASE) == {id_}
    assert await store.start_attempts([held], LEASE) == set()
    assert await store.mark_sent([Record(held, Sent(provider_message_id="m"))]) == set()
    assert await store.end_unsent([Record(held, Ended(reason="MESSAGE_REJECTED", kind="ATTEMPT_FAILED"))]) == set()
    assert await store.retry_later([Record(held, Later(delay=LEASE, kind="ATTEMPT_FAILED"))]) == set()
    assert await notifications.get(id_) == before
    assert not await notifications.events(id_)


async def test_from_the_second_expiry_on_one_suspect_is_taken_at_a_time(
    notifications: Notifications, store: WorkerStore, recovery: Recovery
) -> None:
    ids = await notifications.insert_many(5)
    for taken in (5, 5, 1):
        assert len(await claim(store)) == taken
        await let_leases_pass(notifications)
        await recovery.sweep()
        await make_due(notifications)
    fresh = await notifications.insert("fresh")
    assert [held.notification_id for held in await claim(store, suspects=False)] == [fresh]
    (suspect,) = await claim(store)
    assert suspect.suspect
    assert suspect.notification_id in ids


async def test_one_poison_among_many_takes_nobody_with_it(
    notifications: Notifications, store: WorkerStore, recovery: Recovery
) -> None:
    """Whoever runs the poison dies, with all that runs beside it; the others are sent."""
    ids = await notifications.insert_many(200)
    poison = ids[77]
    on_the_wire: dict[UUID, int] = dict.fromkeys(ids, 0)
    while claims := await claim(store, limit=256):
        for held in claims:
            on_the_wire[held.notification_id] += 1
        if poison in {held.notification_id for held in claims}:
            await let_leases_pass(notifications)
            await recovery.sweep()
        else:
            await store.mark_sent([Record(held, Sent()) for held in claims])
        await make_due(notifications)
    assert await notifications.statuses() == {"SENT": 199, "DEAD_LETTERED": 1}
    assert await notifications.status(poison) == "DEAD_LETTERED"
    assert max(count for id_, count in on_the_wire.items() if id_ != poison) <= 3
    assert on_the_wire[poison] == 6


async def test_a_claim_that_cannot_be_written_stands_in_nobodys_way(
    notifications: Notifications, store: WorkerStore, recovery: Recovery
) -> None:
    bad, good = await notifications.insert("bad"), await notifications.insert("good")
    await claim(store)
    await let_leases_pass(notifications)
    await notifications.connection.execute(
        f"ALTER TABLE notifyqueue.notifications ADD CHECK (id <> '{bad}' OR status <> 'PENDING') NOT VALID"
    )
    with structlog.testing.capture_logs() as logged:
        await recovery.sweep()
    assert [await notifications.status(id_) for id_ in (bad, good)] == ["PROCESSING", "PENDING"]
    assert [line["notification_id"] for line in logged if line["event"] == "job.unrecoverable"] == [str(bad)]


async def test_the_greatest_number_of_attempts_can_still_be_reconciled(
    notifications: Notifications, store: WorkerStore, recovery: Recovery
) -> None:
    id_ = await notifications.insert("last", max_attempts=100, attempt_count=99)
    await claim(store)
    await let_leases_pass(notifications)
    await recovery.sweep()
    row = await notifications.get(id_)
    assert (row["status"], row["max_attempts"], row["reconciliation_granted"]) == ("PENDING", 101, True)


async def test_what_ends_nothing_does_not_touch_the_events(
    notifications: Notifications, store: WorkerStore, database_url: str
) -> None:
    await notifications.insert("claimed")
    other = await asyncpg.connect(database_url)
    async with other.transaction():
        await other.execute("LOCK TABLE notifyqueue.webhook_events IN ACCESS EXCLUSIVE MODE")
        claims = await claim(store)
        assert len(claims) == 1
        assert await store.renew_leases(claims, LEASE) == set()
    await other.close()
