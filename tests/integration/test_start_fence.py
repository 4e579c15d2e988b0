"""Fences: after a claim was taken over, nothing that is written by its old token changes anything."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from services.worker.claim import Claim
from services.worker.outcome import Ended, Later, Sent
from services.worker.store import Record, Store
from services.worker.turnstile_store import TurnstileStore
from shared.database import Database
from tests.conftest import login
from tests.integration.test_worker_faults import Bench, bench, steal
from tests.notifications import Notifications
from tests.waiting import eventually

__all__ = ["bench"]

LEASE = timedelta(minutes=1)
NOBODYS: set[UUID] = set()


@dataclass(frozen=True)
class Worker:
    """What a worker writes by."""

    store: Store
    turnstile: TurnstileStore
    id: UUID

    async def claim(self) -> Claim:
        (claim,) = await self.store.claim_due(
            "EMAIL",
            limit=1,
            classes=(3, 2, 1),
            due_for=timedelta(),
            token=uuid4(),
            worker_id=self.id,
            lease=LEASE,
            take_suspect=True,
        )
        return claim

    async def hold(self, claim: Claim) -> list[UUID]:
        async with self.turnstile.turn() as turn:
            return await turn.hold_claims([claim])


@pytest.fixture
async def late(database_url: str) -> AsyncIterator[Worker]:
    async with Database(login(database_url, "worker"), name="late") as database:
        yield Worker(Store(database), TurnstileStore(database), uuid4())


Write = Callable[[Worker, Claim], Awaitable[Any]]

# Every write about a claim, and what it answers where the claim is somebody else's.
WRITES: Mapping[str, tuple[Write, object]] = {
    "mark_sent": (lambda late, claim: late.store.mark_sent([Record(claim, Sent(provider_message_id="m"))]), NOBODYS),
    "end_unsent": (
        lambda late, claim: late.store.end_unsent(
            [Record(claim, Ended(reason="MESSAGE_REJECTED", kind="ATTEMPT_FAILED"))]
        ),
        NOBODYS,
    ),
    "retry_later": (
        lambda late, claim: late.store.retry_later([Record(claim, Later(delay=LEASE, kind="ATTEMPT_FAILED"))]),
        NOBODYS,
    ),
    "start_attempts": (lambda late, claim: late.store.start_attempts([claim], LEASE), NOBODYS),
    "release_token": (lambda late, claim: late.store.release_token(claim.claim_token, late.id), 0),
    "hold_claims": (lambda late, claim: late.hold(claim), []),
    "return_slot": (lambda late, claim: late.turnstile.return_slot(claim), None),
}


async def take_over(notifications: Notifications, late: Worker) -> Claim:
    """As after a lease that passed: a sweep has put it back, and another worker has claimed it and started."""
    await notifications.connection.execute(
        "UPDATE notifyqueue.notifications SET status = 'PENDING', claim_token = NULL, worker_id = NULL,"
        " lease_expires_at = NULL, revision = revision + 1"
    )
    other = Worker(late.store, late.turnstile, uuid4())
    claim = await other.claim()
    await notifications.connection.execute(
        "INSERT INTO notifyqueue.recipient_reservations (notification_id, tenant_id, limit_key, started_at, leaves_at)"
        " VALUES ($1, 'default', 'EMAIL someone@example.com', now(), now())",
        claim.notification_id,
    )
    return claim


async def everything(notifications: Notifications) -> list[object]:
    tables = ("notifications", "notification_history", "webhook_events", "recipient_reservations")
    return [await notifications.connection.fetch(f"SELECT * FROM notifyqueue.{table}") for table in tables]


@pytest.mark.parametrize("write", WRITES)
async def test_what_is_written_by_an_old_token_changes_nothing(
    notifications: Notifications, late: Worker, write: str
) -> None:
    id_ = await notifications.insert("taken over")
    lost = await late.claim()
    assert (await take_over(notifications, late)).notification_id == id_
    before = await everything(notifications)
    make, nothing = WRITES[write]
    assert await make(late, lost) == nothing
    assert await everything(notifications) == before


async def test_a_renewal_by_an_old_token_is_told_that_the_claim_is_lost_and_lengthens_nothing(
    notifications: Notifications, late: Worker
) -> None:
    id_ = await notifications.insert("taken over")
    lost = await late.claim()
    await take_over(notifications, late)
    before = await everything(notifications)
    assert await late.store.renew_leases([lost], LEASE) == {id_}
    assert await everything(notifications) == before


async def test_a_call_that_may_be_made_only_once_begins_after_its_start_was_written(
    notifications: Notifications, bench: Bench
) -> None:
    """By that a sweep tells whether a call can have been made."""
    bench.provider.gate.clear()
    once, usual = await notifications.insert("once", at_most_once=True), await notifications.insert("usual")
    await bench.start()
    await eventually(lambda: len(bench.provider.seen) == 2)
    started = [(await notifications.get(id_))["started_at"] is not None for id_ in (once, usual)]
    bench.provider.gate.set()
    assert started == [True, False]


async def test_what_was_taken_over_before_its_call_is_not_sent(
    notifications: Notifications, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood still between its claim and its call, for so long that it has to ask."""
    await notifications.insert("slow")
    monkeypatch.setattr("services.worker.delivery.FRESH", -1.0)
    claim_due = bench.store.claim_due

    async def stand_still(channel: str, **settings: Any) -> list[Claim]:
        claims = await claim_due(channel, **settings)
        for claim in claims:
            await steal(notifications, claim.notification_id)
        return claims

    monkeypatch.setattr(bench.store, "claim_due", stand_still)
    worker = await bench.start()
    await eventually(lambda: worker.lanes["EMAIL"].totals.claims_lost == 1)
    assert not bench.provider.seen
