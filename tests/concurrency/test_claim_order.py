"""What a claim takes first, how much of it goes to the least urgent, and whom a row that cannot be claimed stops."""

import random
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from services.worker.claim import Claim
from services.worker.lane import LOW_FIRST, URGENT_FIRST
from services.worker.store import Store
from shared.database import Database
from tests.conftest import login
from tests.integration.conftest import StartWorker, stack, start_worker
from tests.notifications import Notifications
from tests.providers import ScriptedProvider
from tests.waiting import eventually

__all__ = ["stack", "start_worker"]

LOW, NORMAL, HIGH = 1, 2, 3
MINUTE = timedelta(minutes=1)
AGING = 5 * MINUTE


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with Database(login(database_url, "worker"), name="test", size=2) as database:
        yield Store(database)


async def claim(store: Store, limit: int, classes: Sequence[int] = URGENT_FIRST, **settings: Any) -> set[UUID]:
    asked: dict[str, Any] = {"due_for": timedelta(), "take_suspect": True} | settings
    claims: list[Claim] = await store.claim_due(
        "EMAIL", limit=limit, classes=classes, token=uuid4(), worker_id=uuid4(), lease=MINUTE, **asked
    )
    return {claim.notification_id for claim in claims}


@pytest.mark.parametrize("database_url", ["postgres", "postgres_15"], indirect=True)
async def test_claims_of_any_size_take_the_most_urgent_and_of_those_what_was_due_first(
    store: Store, notifications: Notifications
) -> None:
    dice = random.Random(7)
    ages = dice.sample(range(-30, 90), 60)  # in minutes, and some not due yet
    rows = [(dice.choice([LOW, NORMAL, HIGH]), age, number) for number, age in enumerate(ages)]
    ids = [
        await notifications.insert(f"{number}", priority=priority, due_in=-age * MINUTE)
        for priority, age, number in rows
    ]
    due = [(-priority, -age, id_) for (priority, age, _), id_ in zip(rows, ids, strict=True) if age >= 0]
    wanted = [id_ for _, _, id_ in sorted(due)]
    for limit in (8, 1, 4, 16, 2):
        assert await claim(store, limit) == set(wanted[:limit])
        wanted = wanted[limit:]
    assert await claim(store, 512) == set(wanted)


async def test_a_claim_from_the_bottom_takes_what_has_waited_long_low_first(
    store: Store, notifications: Notifications
) -> None:
    ids = {
        (priority, age): await notifications.insert(f"{priority} {age}", priority=priority, due_in=-age * MINUTE)
        for priority in (LOW, NORMAL, HIGH)
        for age in (1, 6, 7)
    }
    taken = [(await claim(store, 1, LOW_FIRST, due_for=AGING)) for _ in range(7)]
    order = [(priority, age) for priority in (LOW, NORMAL, HIGH) for age in (7, 6)]
    assert taken == [*({ids[one]} for one in order), set()]


# --- a row at its cap


async def at_its_cap(notifications: Notifications, **columns: Any) -> UUID:
    """First of all, and as the database does not allow it: a mistaken statement of another version may have left it."""
    await notifications.connection.execute(
        "ALTER TABLE notifyqueue.notifications DROP CONSTRAINT IF EXISTS pending_has_an_attempt_left"
    )
    return await notifications.insert(
        "capped", priority=HIGH, due_in=-90 * MINUTE, attempt_count=3, max_attempts=3, **columns
    )


async def test_a_row_at_its_attempt_cap_stops_no_claim(store: Store, notifications: Notifications) -> None:
    capped = await at_its_cap(notifications)
    others = await notifications.insert_many(3)
    assert await claim(store, 1) | await claim(store, 64) == set(others)
    assert await notifications.status(capped) == "PENDING"


async def test_a_suspect_at_its_attempt_cap_stops_no_other_suspect(store: Store, notifications: Notifications) -> None:
    await at_its_cap(notifications, expiries=2)
    suspect = await notifications.insert("suspect", expiries=2)
    healthy = await notifications.insert("healthy")
    assert await claim(store, 64) == {suspect, healthy}


async def test_rows_at_their_attempt_cap_stop_no_probe(store: Store, notifications: Notifications) -> None:
    await at_its_cap(notifications)
    (other,) = await notifications.insert_many(1)
    found = [await store.claim_probe("EMAIL", token=uuid4(), worker_id=uuid4(), lease=MINUTE) for _ in range(2)]
    assert [[held.notification_id for held in claims] for claims in found] == [[other], []]


# --- the share of the least urgent


async def starts(
    notifications: Notifications, start_worker: StartWorker, url: str, *, high: int, low: int, aging: float
) -> list[int]:
    """The priorities of what was sent, one at a time and in that order, where all was due long ago."""
    priorities = {
        await notifications.insert(f"{priority} {number}", priority=priority, due_in=-10 * MINUTE): priority
        for priority, count in ((HIGH, high), (LOW, low))
        for number in range(count)
    }
    provider = ScriptedProvider()
    await start_worker(url, provider, worker_concurrency=1, priority_aging=aging, lease=60.0)

    async def all_sent() -> bool:
        return await notifications.statuses() == {"SENT": high + low}

    await eventually(all_sent)
    return [priorities[message.delivery_key] for message in provider.seen]


async def test_under_a_saturated_high_low_gets_one_start_in_eight_and_high_keeps_seven(
    notifications: Notifications, start_worker: StartWorker, database_url: str
) -> None:
    order = await starts(notifications, start_worker, database_url, high=42, low=8, aging=300.0)
    assert order == [*([HIGH] * 7 + [LOW]) * 6, LOW, LOW]


async def test_without_aging_nothing_low_starts_before_all_that_is_high(
    notifications: Notifications, start_worker: StartWorker, database_url: str
) -> None:
    order = await starts(notifications, start_worker, database_url, high=24, low=4, aging=0.0)
    assert order == [HIGH] * 24 + [LOW] * 4


async def test_what_has_not_waited_long_gives_nothing_away(
    notifications: Notifications, start_worker: StartWorker, database_url: str
) -> None:
    order = await starts(notifications, start_worker, database_url, high=24, low=4, aging=3600.0)
    assert order == [HIGH] * 24 + [LOW] * 4
