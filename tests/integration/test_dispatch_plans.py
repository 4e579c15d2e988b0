"""What the dispatcher's statements read: what they take, however much lies beside it, with statistics or without."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest

from sandbox.postgres import Postgres
from services.dispatcher.delivery import Delivery
from services.dispatcher.outcome import Answer, Verdict
from services.dispatcher.store import Store
from shared.paging import NEWEST
from tests.databases import FRESH, Connection, filled
from tests.integration.test_dispatcher_rig import DELIVERED, LEASE, REFUSED, result
from tests.plans import Explaining, Plan

BACKLOG = 6_000
ENDED = 14_000
OTHER_TENANTS = 100  # with twenty endpoints each
FRESH_EVENTS = 200
ENDPOINT = UUID(int=7)

EVENTS = """
INSERT INTO notifyqueue.webhook_events (
  tenant_id, notification_id, status, redrive_count, attempt_count, channel, labels, occurred_at
)
SELECT 'default', gen_random_uuid(), 'SENT', 0, 1, 'EMAIL', '{}', now() FROM generate_series(1, $1)
"""


@dataclass
class Crowd:
    """One endpoint with much behind it and much before it, among many that have nothing to do."""

    connection: Connection
    has_statistics: bool


async def fill(connection: Connection) -> None:
    await connection.execute(
        """
        WITH others AS (
          INSERT INTO notifyqueue.tenants (id) SELECT 'other-' || number FROM generate_series(1, $1) AS number
          RETURNING id)
        INSERT INTO notifyqueue.webhook_endpoints (tenant_id, url, sealed_secret)
        SELECT others.id, 'http://127.0.0.1:9/', '' FROM others CROSS JOIN generate_series(1, 20)
        """,
        OTHER_TENANTS,
    )
    await connection.execute(
        """
        INSERT INTO notifyqueue.webhook_endpoints (id, tenant_id, url, sealed_secret, created_at, next_due_at)
        VALUES ($1, 'default', 'http://127.0.0.1:9/', '', now() - interval '1 hour', now())
        """,
        ENDPOINT,
    )
    await connection.execute(EVENTS, ENDED + BACKLOG)
    await connection.execute("UPDATE notifyqueue.webhook_events SET fanned_out_at = now(), body = '{}'")
    await connection.execute(
        """
        INSERT INTO notifyqueue.webhook_deliveries (event_id, endpoint_id, tenant_id, next_attempt_at, delivered_at)
        SELECT e.id, $1, 'default', now() - interval '1 second' * (number % 7), CASE WHEN number <= $2 THEN now() END
        FROM (SELECT v.id, row_number() OVER () AS number FROM notifyqueue.webhook_events AS v) AS e
        """,
        ENDPOINT,
        ENDED,
    )
    await connection.execute(EVENTS, FRESH_EVENTS)


@pytest.fixture(params=["postgres", "postgres_15"])
def server(request: pytest.FixtureRequest) -> Postgres:
    found: Postgres = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=["ANALYZE", FRESH], ids=["statistics", "no-statistics"])
async def crowd(server: Postgres, request: pytest.FixtureRequest) -> AsyncIterator[Crowd]:
    """Filled once: each test undoes what it does."""
    connection = await asyncpg.connect(await filled(server, "plans_dispatcher", fill, request.param))
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield Crowd(connection, bool(request.param))
    finally:
        await transaction.rollback()
        await connection.close()


@pytest.fixture(params=[False, True], ids=["custom", "generic"])
def explaining(crowd: Crowd, request: pytest.FixtureRequest) -> Explaining:
    return Explaining(crowd.connection, generic=request.param)


def is_frugal(plan: Plan, crowd: Crowd, *, most: int) -> None:
    assert "Seq Scan" not in plan.scans("webhook_deliveries"), plan
    assert "Seq Scan" not in plan.scans("webhook_events"), plan
    if crowd.has_statistics:  # without them, endpoints are few enough to be read
        assert "Seq Scan" not in plan.scans("webhook_endpoints"), plan
    assert plan.buffers <= most, plan


async def claim(crowd: Crowd, explaining: Explaining) -> Sequence[Delivery]:
    store = Store(explaining)
    async with crowd.connection.transaction():
        taken = await store.take_endpoints(10, 100)
        claimed = await store.claim_deliveries(
            taken, cap=10, limit=100, token=uuid4(), lease=LEASE, max_attempts=10, tick=0.0
        )
    return claimed.deliveries


async def test_claiming_and_recording_read_what_they_take(crowd: Crowd, explaining: Explaining) -> None:
    claimed = await claim(crowd, explaining)
    assert len(claimed) == 10
    store = Store(explaining)
    assert await store.read_next_due(10, timedelta(seconds=5)) is None
    results = [result(delivery, Answer(204), DELIVERED) for delivery in claimed[:5]]
    results += [result(delivery, REFUSED, Verdict(delay=LEASE)) for delivery in claimed[5:]]
    assert all(await store.record_results(results))
    assert len(explaining.plans) == 4
    for plan in explaining.plans:
        is_frugal(plan, crowd, most=400)


async def test_fanning_out_reads_what_it_takes(crowd: Crowd, explaining: Explaining) -> None:
    assert (await Store(explaining).fan_out_events())[0] == FRESH_EVENTS
    (plan,) = explaining.plans
    is_frugal(plan, crowd, most=30 * FRESH_EVENTS)


async def test_listing_endpoints_reads_what_it_shows(crowd: Crowd, explaining: Explaining) -> None:
    assert len(await Store(explaining).list_endpoints("other-7", NEWEST, 50)) == 20
    is_frugal(explaining.plan, crowd, most=100)


async def test_giving_up_reads_what_it_gives_up(crowd: Crowd, explaining: Explaining) -> None:
    assert await Store(crowd.connection).delete_endpoint("default", ENDPOINT)
    assert await Store(explaining).give_up_deleted() == 1
    (plan,) = explaining.plans
    is_frugal(plan, crowd, most=1_000)
    given_up = "SELECT count(*) FROM notifyqueue.webhook_deliveries WHERE given_up_at IS NOT NULL"
    assert await crowd.connection.fetchval(given_up) == 500
