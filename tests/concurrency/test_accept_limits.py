"""A limit is exact and charged once per notification, however many bring requests in through whichever scheduler."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from itertools import chain

import grpc.aio
import pytest

from services.scheduler.accept import Accept
from services.scheduler.accept_store import AcceptStore
from services.scheduler.judging import Accepted, Answer, Candidate, candidate
from services.scheduler.notification import Request
from shared.database import Database
from shared.errors import IdempotencyKeyReused, TenantLimitExceeded
from tests.concurrency.test_idempotency import Scheduler, deadlocks, halves, schedule, start
from tests.notifications import Notifications
from tests.recipients import PSEUDONYMS
from tests.templates import NoTemplates

SOON = timedelta(seconds=5)
TENANTS = ["a", "b", "c", "d", "free"]
GROUPS = 25  # of each client
INTERVAL = timedelta(seconds=100)
"""Of a rate of 0.01 a second: longer than a test, so that what was charged can be counted."""


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.mark.parametrize(
    "bound", ["accept_rate = 0.01, accept_burst = 100", "pending_quota = 100"], ids=["a limit", "a quota"]
)
async def test_64_callers_of_two_schedulers_get_what_there_is_and_not_one_more(
    stack: AsyncExitStack, notifications: Notifications, database_url: str, bound: str
) -> None:
    await notifications.connection.execute(f"UPDATE notifyqueue.tenants SET {bound}")
    schedulers = [await start(stack, database_url) for _ in range(2)]

    async def call(scheduler: Scheduler, key: str) -> str:
        try:
            return "replayed" if (await scheduler.ScheduleNotification(schedule(key))).replayed else "written"
        except grpc.aio.AioRpcError as error:
            return str(error.code().name)

    async def caller(number: int) -> list[str]:
        return [await call(schedulers[number % 2], f"{number} {turn}") for turn in range(5)]

    outcomes = Counter(chain(*await asyncio.gather(*map(caller, range(64)))))
    assert outcomes == {"written": 100, "RESOURCE_EXHAUSTED": 220}
    assert await notifications.statuses() == {"PENDING": 100}


async def test_25_identical_requests_spend_one_and_are_all_answered_where_only_one_may_go_in(
    stack: AsyncExitStack, notifications: Notifications, database_url: str
) -> None:
    await notifications.connection.execute("UPDATE notifyqueue.tenants SET accept_rate = 0.01, accept_burst = 1")
    schedulers = [await start(stack, database_url) for _ in range(2)]
    answers = await asyncio.gather(*[schedulers[n % 2].ScheduleNotification(schedule("one")) for n in range(25)])
    assert Counter(answer.replayed for answer in answers) == {False: 1, True: 24}


def asked(tenant: str, key: str, text: str) -> Candidate:
    content = {"subject": "Hello", "text": text}
    return candidate(Request(tenant, key, "EMAIL", "someone@example.com", content, 2, None, None, False, "", None, {}))


@pytest.mark.parametrize("burst", [1_000, 30], ids=["room for all", "room for few"])
async def test_groups_that_share_keys_and_tenants_in_any_order_do_not_deadlock_and_charge_each_row_once(
    database_url: str, notifications: Notifications, burst: int
) -> None:
    """Six clients, two databases' worth of connections, 400 keys of five tenants, one request in twenty another."""
    for tenant in TENANTS:
        limits = (None, None) if tenant == "free" else ("0.01", burst)
        await notifications.connection.execute(
            "INSERT INTO notifyqueue.tenants (id, accept_rate, accept_burst) VALUES ($1, $2::text::numeric, $3)",
            *(tenant, *limits),
        )
    began = await notifications.connection.fetchval("SELECT clock_timestamp()")
    answers: list[tuple[str, Answer]] = []

    async def client(accept: Accept, seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(GROUPS):
            numbers = dice.sample(range(400), 50)
            texts = ["another" if dice.random() < 0.05 else "usual" for _ in numbers]
            group = [asked(TENANTS[n % 5], f"{n}", text) for n, text in zip(numbers, texts, strict=True)]
            found = await accept.flush(group)
            answers.extend(zip((one.request.tenant for one in group), found, strict=True))

    # As the owner, whose locks may be waited for longer: here a wait is no fault, a deadlock is.
    async with (
        Database(database_url, name="one", size=3) as one,
        Database(database_url, name="other", size=3) as other,
    ):
        accepts = [
            Accept(
                AcceptStore(database),
                NoTemplates(),
                pseudonyms=PSEUDONYMS,
                max_attempts=5,
                on_due=lambda _: None,
                soon=timedelta(seconds=5),
            )
            for database in (one, other)
        ]
        await asyncio.gather(*[client(accepts[number % 2], number) for number in range(6)])

    fresh = Counter(tenant for tenant, found in answers if isinstance(found, Accepted) and not found.replayed)
    stored = await notifications.connection.fetch(
        "SELECT tenant_id, count(*) AS count FROM notifyqueue.notifications GROUP BY tenant_id"
    )
    assert fresh == {row["tenant_id"]: row["count"] for row in stored}
    assert fresh == {tenant: 80 if tenant == "free" else min(80, burst) for tenant in TENANTS}
    kinds = {type(found) for tenant, found in answers if tenant != "free"}
    assert kinds - {Accepted, IdempotencyKeyReused} == ({TenantLimitExceeded} if burst < 80 else set())

    rows = await notifications.connection.fetch("SELECT tenant_id, empty_at FROM notifyqueue.accept_buckets")
    charged = {row["tenant_id"]: (row["empty_at"] - began) // INTERVAL for row in rows}
    assert charged == {tenant: count for tenant, count in fresh.items() if tenant != "free"}
    assert await halves(notifications) == 0
    assert await deadlocks(notifications) == 0
