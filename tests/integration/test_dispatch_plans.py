"""What the dispatcher's statements read: what they take, however much lies beside it, with statistics or without."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from services.dispatcher.delivery import Delivery
from services.dispatcher.outcome import Answer, Verdict
from services.dispatcher.store import Store
from shared.paging import NEWEST
from tests.integration.test_dispatcher_rig import DELIVERED, LEASE, REFUSED, Rig, result
from tests.plans import Explaining, Plan

pytestmark = pytest.mark.parametrize("database_url", ["postgres", "postgres_15"], indirect=True)

BACKLOG = 6_000
ENDED = 14_000
OTHER_TENANTS = 100  # with twenty endpoints each
FRESH = 200


@dataclass
class Crowd:
    """One endpoint with much behind it and much before it, among many that have nothing to do."""

    rig: Rig
    endpoint: UUID
    has_statistics: bool


@pytest.fixture(params=[True, False], ids=["statistics", "no-statistics"])
async def crowd(database_url: str, stack: AsyncExitStack, request: pytest.FixtureRequest) -> Crowd:
    rig = await Rig.open(stack, database_url)
    for table in ("webhook_deliveries", "webhook_events", "webhook_endpoints"):
        await rig.execute(f"ALTER TABLE notifyqueue.{table} SET (autovacuum_enabled = off)")
    endpoint = await rig.endpoint()
    await rig.execute(
        """
        WITH others AS (
          INSERT INTO notifyqueue.tenants (id) SELECT 'other-' || number FROM generate_series(1, $1) AS number
          RETURNING id)
        INSERT INTO notifyqueue.webhook_endpoints (tenant_id, url, sealed_secret)
        SELECT others.id, 'http://127.0.0.1:9/', '' FROM others CROSS JOIN generate_series(1, 20)
        """,
        OTHER_TENANTS,
    )
    await rig.events(ENDED + BACKLOG)
    await rig.execute("UPDATE notifyqueue.webhook_events SET fanned_out_at = now(), body = '{}'")
    await rig.execute(
        """
        INSERT INTO notifyqueue.webhook_deliveries (event_id, endpoint_id, tenant_id, next_attempt_at, delivered_at)
        SELECT e.id, $1, 'default', now() - interval '1 second' * (number % 7), CASE WHEN number <= $2 THEN now() END
        FROM (SELECT v.id, row_number() OVER () AS number FROM notifyqueue.webhook_events AS v) AS e
        """,
        endpoint,
        ENDED,
    )
    await rig.execute("UPDATE notifyqueue.webhook_endpoints SET next_due_at = now() WHERE id = $1", endpoint)
    await rig.events(FRESH)
    if request.param:
        await rig.execute("ANALYZE")
    return Crowd(rig, endpoint, request.param)


@pytest.fixture(params=[False, True], ids=["custom", "generic"])
def explaining(crowd: Crowd, request: pytest.FixtureRequest) -> Explaining:
    return Explaining(crowd.rig.connection, generic=request.param)


def is_frugal(plan: Plan, crowd: Crowd, *, most: int) -> None:
    assert "Seq Scan" not in plan.scans("webhook_deliveries"), plan
    assert "Seq Scan" not in plan.scans("webhook_events"), plan
    if crowd.has_statistics:  # without them, endpoints are few enough to be read
        assert "Seq Scan" not in plan.scans("webhook_endpoints"), plan
    assert plan.buffers <= most, plan


async def claim(crowd: Crowd, explaining: Explaining) -> Sequence[Delivery]:
    store = Store(explaining)
    async with crowd.rig.connection.transaction():
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
    assert (await Store(explaining).fan_out_events())[0] == FRESH
    (plan,) = explaining.plans
    is_frugal(plan, crowd, most=30 * FRESH)


async def test_listing_endpoints_reads_what_it_shows(crowd: Crowd, explaining: Explaining) -> None:
    assert len(await Store(explaining).list_endpoints("other-7", NEWEST, 50)) == 20
    is_frugal(explaining.plan, crowd, most=100)


async def test_giving_up_reads_what_it_gives_up(crowd: Crowd, explaining: Explaining) -> None:
    assert await crowd.rig.store.delete_endpoint("default", crowd.endpoint)
    assert await Store(explaining).give_up_deleted() == 1
    (plan,) = explaining.plans
    is_frugal(plan, crowd, most=1_000)
    given_up = "SELECT count(*) FROM notifyqueue.webhook_deliveries WHERE given_up_at IS NOT NULL"
    assert await crowd.rig.value(given_up) == 500
