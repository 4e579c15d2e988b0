"""Fences: whoever holds an old token changes nothing, whatever it wants to write, and whatever became of its claim."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from services.worker.admission import Admission, Entry
from services.worker.claim import Claim
from services.worker.outcome import Ended, Later, Sent, Verdict
from services.worker.store import Record, WorkerStore, sql
from services.worker.turnstile_store import TurnstileStore
from shared.database import Database
from tests.conftest import login
from tests.notifications import Notifications
from tests.recipients import limit

LEASE = timedelta(minutes=1)
WORKER = uuid4()
TOKEN = uuid4()
"""Of the claim in question."""
RETRIED = Later(delay=LEASE, kind="ATTEMPT_FAILED", code="451")


@dataclass(frozen=True, slots=True)
class Writers:
    """What writes about claims."""

    store: WorkerStore
    turnstile: TurnstileStore
    admission: Admission

    async def record(self, claims: Sequence[Claim], verdict: Verdict) -> set[UUID]:
        records: list[Record[Any]] = [Record(claim, verdict) for claim in claims]
        match verdict:
            case Sent():
                return await self.store.mark_sent(records)
            case Ended():
                return await self.store.end_unsent(records)
            case Later():
                return await self.store.retry_later(records)

    async def admit(self, claims: Sequence[Claim]) -> set[UUID]:
        tickets = {claim.notification_id: await self.admission.ask(claim) for claim in claims}
        return {id_ for id_, ticket in tickets.items() if ticket.entry is not Entry.LOST}

    async def return_slots(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            await self.turnstile.return_slot(claim)


Write = Callable[[Writers, Sequence[Claim]], Awaitable[object]]


def recording(verdict: Verdict) -> Write:
    return lambda writers, claims: writers.record(claims, verdict)


# What a worker writes about its claims, and the statements that it takes.
WRITES: Mapping[str, tuple[set[str], Write]] = {
    "completion": ({"mark_sent"}, recording(Sent(provider_message_id="m-old"))),
    "refusal": ({"end_unsent"}, recording(Ended(reason="MESSAGE_REJECTED", kind="ATTEMPT_FAILED", code="550"))),
    "dead letter": ({"end_unsent"}, recording(Ended(reason="ATTEMPTS_EXHAUSTED", kind="ATTEMPT_FAILED"))),
    "expire": ({"end_unsent"}, recording(Ended(reason=None, kind=None))),
    "suppress": ({"end_unsent"}, recording(Ended(reason="OPTED_OUT", kind=None))),
    "retry": ({"retry_later"}, recording(RETRIED)),
    "release": ({"retry_later"}, recording(Later(delay=timedelta(), kind=None, refunded=True))),
    "release by token": ({"release_token"}, lambda writers, claims: writers.store.release_token(TOKEN, WORKER)),
    "start": ({"start_attempts"}, lambda writers, claims: writers.store.start_attempts(claims, LEASE)),
    "renewal": ({"renew_leases"}, lambda writers, claims: writers.store.renew_leases(claims, LEASE)),
    "admission": ({"hold_claims", "find_standing", "start_admitted"}, Writers.admit),
    "waiting": ({"hold_claims", "find_standing", "wait_at_gates"}, Writers.admit),
    "slot": ({"return_slot"}, Writers.return_slots),
}
READ = {"find_held", "find_recorded"}
MADE = {"claim_due", "claim_probe"}
"""They make tokens."""


@pytest.fixture
async def writers(database_url: str) -> AsyncIterator[Writers]:
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(Database(login(database_url, "worker"), name="test"))
        turnstile = TurnstileStore(database)
        admission = await stack.enter_async_context(Admission(turnstile, lease=LEASE, on_wait=lambda *_: None))
        yield Writers(WorkerStore(database), turnstile, admission)


async def claim(store: WorkerStore, *, count: int, token: UUID, worker: UUID) -> list[Claim]:
    return await store.claim_due(
        "EMAIL",
        limit=count,
        classes=(3, 2, 1),
        due_for=timedelta(),
        token=token,
        worker_id=worker,
        lease=LEASE,
        take_suspect=False,
    )


async def overtake(notifications: Notifications, store: WorkerStore) -> tuple[list[Claim], Claim]:
    """Three claims that were lost, in three ways, and one that stands; all made by one statement."""
    recovered, taken, ended = await notifications.insert_many(3)
    ours = await notifications.insert("ours")
    claims = {held.notification_id: held for held in await claim(store, count=4, token=TOKEN, worker=WORKER)}
    lost = [claims[id_] for id_ in (recovered, taken, ended)]
    expired = Later(delay=timedelta(), kind="ATTEMPT_UNKNOWN", code="lease_expired")
    assert len(await store.retry_later([Record(held, expired, expired=True) for held in lost])) == 3
    await notifications.connection.execute(
        "UPDATE notifyqueue.notifications SET next_attempt_at = now() + interval '1 hour' WHERE id = $1", recovered
    )
    others = await claim(store, count=4, token=uuid4(), worker=WORKER)  # it may be the same one that takes it again
    assert {held.notification_id for held in others} == {taken, ended}
    await store.mark_sent([Record(held, Sent()) for held in others if held.notification_id == ended])
    return lost, claims[ours]


async def everything(notifications: Notifications, ids: Sequence[UUID]) -> dict[str, list["asyncpg.Record"]]:
    """All that the database says of them, and of everybody's gates."""
    told = {
        table: await notifications.connection.fetch(
            f"SELECT * FROM notifyqueue.{table} AS t WHERE t.{column} = ANY ($1) ORDER BY t", ids
        )
        for table, column in {
            "notifications": "id",
            "notification_contents": "notification_id",
            "notification_history": "notification_id",
            "recipient_reservations": "notification_id",
            "webhook_events": "notification_id",
        }.items()
    }
    return told | {"gates": await notifications.connection.fetch("SELECT * FROM notifyqueue.recipient_gates")}


async def reserve(notifications: Notifications, claims: Sequence[Claim]) -> None:
    await notifications.connection.executemany(
        "INSERT INTO notifyqueue.recipient_reservations (notification_id, tenant_id, limit_key, started_at, leaves_at)"
        " VALUES ($1, $2, $3, now(), now() + interval '1 hour')",
        [(held.notification_id, *held.recipient) for held in claims],
    )


@pytest.mark.parametrize("write", WRITES)
async def test_an_old_token_changes_nothing_and_writes_no_event(
    notifications: Notifications, writers: Writers, write: str
) -> None:
    lost, ours = await overtake(notifications, writers.store)
    await limit(notifications, 1, timedelta(hours=1))
    if write in ("waiting", "slot"):
        await reserve(notifications, [*lost, ours])
    if write == "waiting":  # the slots are others'
        await notifications.connection.execute(
            "UPDATE notifyqueue.recipient_reservations SET notification_id = gen_random_uuid()"
        )
    ids = [held.notification_id for held in lost]
    before, before_ours = await everything(notifications, ids), await notifications.get(ours.notification_id)
    reserved = (await everything(notifications, [ours.notification_id]))["recipient_reservations"]

    await WRITES[write][1](writers, lost)
    assert await everything(notifications, ids) == before

    # Beside one that is held by the token, too; and that one is written, so it was the fence that held the others off.
    await WRITES[write][1](writers, [*lost, ours])
    after = await everything(notifications, ids)
    assert {**after, "gates": []} == {**before, "gates": []}
    if write == "slot":
        assert (await everything(notifications, [ours.notification_id]))["recipient_reservations"] != reserved
    else:
        assert await notifications.get(ours.notification_id) != before_ours


async def test_what_goes_back_without_a_call_keeps_its_place_and_what_was_tried_does_not(
    notifications: Notifications, writers: Writers
) -> None:
    first, _ = await notifications.insert("first", due_in=timedelta(hours=-1)), await notifications.insert("second")
    due = (await notifications.get(first))["next_attempt_at"]

    async def claim_next() -> Claim:
        (held,) = await claim(writers.store, count=1, token=uuid4(), worker=WORKER)
        return held

    for verdict in (Later(delay=timedelta(), kind=None, refunded=True), replace(RETRIED, delay=timedelta())):
        held = await claim_next()
        assert (held.notification_id, (await notifications.get(first))["next_attempt_at"]) == (first, due)
        await writers.record([held], verdict)
    assert (await claim_next()).notification_id != first


async def test_an_old_token_finds_nothing_held_and_nothing_recorded(
    notifications: Notifications, writers: Writers
) -> None:
    lost, ours = await overtake(notifications, writers.store)
    assert await writers.store.find_held([*lost, ours]) == {ours.notification_id}
    assert await writers.store.find_recorded([Record(held, Sent()) for held in lost]) == set()
    assert await writers.store.find_recorded([Record(held, RETRIED) for held in lost]) == set()


async def test_what_a_sweep_wrote_about_a_claim_is_not_its_record(
    notifications: Notifications, writers: Writers
) -> None:
    """Also where the number of the attempt is the same again, as after a redrive."""
    await notifications.insert_many(2)
    unknown = Later(delay=timedelta(), kind="ATTEMPT_UNKNOWN", code="timeout")
    swept = Later(delay=timedelta(), kind="ATTEMPT_UNKNOWN", code="lease_expired", refunded=True)
    lost = await claim(writers.store, count=2, token=TOKEN, worker=WORKER)
    await writers.store.retry_later([Record(held, swept, expired=True) for held in lost])
    others = await claim(writers.store, count=2, token=uuid4(), worker=WORKER)
    assert [held.number for held in others] == [held.number for held in lost] == [1, 1]
    await writers.store.mark_sent([Record(others[0], Sent())])
    await writers.store.retry_later([Record(others[1], unknown)])

    assert await writers.store.find_recorded([Record(held, Sent()) for held in lost]) == set()
    assert await writers.store.find_recorded([Record(held, unknown) for held in lost]) == set()
    assert await writers.store.find_recorded([Record(others[0], Sent())]) == {others[0].notification_id}
    assert await writers.store.find_recorded([Record(others[1], unknown)]) == {others[1].notification_id}


def test_every_statement_that_takes_a_claim_token_is_under_test() -> None:
    takes = {name for name in sql._texts if "claim token" in _promise(sql[name])}
    written = set().union(*(statements for statements, _ in WRITES.values()))
    assert takes - MADE - READ <= written
    assert written - takes == {"start_admitted", "wait_at_gates"}  # of what hold_claims holds in their transaction


def _promise(text: str) -> str:
    return "".join(line for line in text.splitlines() if line.startswith("--"))
