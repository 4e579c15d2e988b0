"""The statements about recipients keep their plans: with and without statistics, for any arguments, on 18 and 15."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from uuid import UUID

import asyncpg
import pytest

from sandbox.postgres import Postgres
from services.scheduler.listing import OLDEST, Scan
from services.scheduler.recipient_store import RecipientStore
from services.scheduler.suppressions import Ban, Filter, Order
from shared.paging import NEWEST, Page
from tests.databases import ANALYSED, FRESH, filled
from tests.plans import Explaining, Plan

COUNT = 30_000

# One tenant has nearly all, and of one source; of notifications one in a thousand is in hand.
FILLING = f"""
INSERT INTO notifyqueue.tenants (id) SELECT 'tenant-' || n FROM generate_series(0, 9) AS n;
INSERT INTO notifyqueue.suppressions (tenant_id, channel, address, category, source)
SELECT CASE WHEN n % 100 > 9 THEN 'default' ELSE 'tenant-' || n % 100 END, 'EMAIL', 'a' || n || '@example.com',
  'c' || n % 5, CASE n % 1000 WHEN 17 THEN 'COMPLAINED' ELSE 'BOUNCED' END
FROM generate_series(1, {COUNT}) AS n;
INSERT INTO notifyqueue.notifications (
  tenant_id, idempotency_key, fingerprint, channel, address, priority, max_attempts, due_at, next_attempt_at, status,
  finished_at, attempt_count, claim_token, worker_id, lease_expires_at
)
SELECT 'default', n, '', 'EMAIL', 'a1@example.com', 2, 5, now(), now(), said.status,
  CASE said.status WHEN 'SENT' THEN now() END, 1, held.token, held.token,
  CASE WHEN held.token IS NOT NULL THEN now() END
FROM generate_series(1, {COUNT}) AS n
CROSS JOIN LATERAL (SELECT CASE n % 1000 WHEN 7 THEN 'PROCESSING' ELSE 'SENT' END AS status) AS said
CROSS JOIN LATERAL (SELECT CASE said.status WHEN 'PROCESSING' THEN gen_random_uuid() END AS token) AS held;
"""
# A tenant of a few ten thousand may be read and sorted: for what is bounded by 10,000 rows that is as good.
SORTED = 900
BAN = Ban("EMAIL", "a20@example.com", "c0", "BOUNCED", pseudonym="p20")


async def fill(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    await connection.execute(FILLING)


@pytest.fixture(scope="module", params=["postgres", "postgres_15"])
def server(request: pytest.FixtureRequest) -> Postgres:
    found: Postgres = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module", params=[FRESH, ANALYSED], ids=["fresh", "analysed"])
def url(server: Postgres, request: pytest.FixtureRequest) -> str:
    return asyncio.run(filled(server, "plans_recipients", fill, request.param))


@pytest.fixture(params=[False, True], ids=["custom", "generic"])
async def explaining(url: str, request: pytest.FixtureRequest) -> AsyncIterator[Explaining]:
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield Explaining(connection, generic=request.param)
    finally:
        await transaction.rollback()
        await connection.close()


def assert_by_index(plan: Plan, index: str | None, buffers: int) -> None:
    for table in ("suppressions", "notifications"):
        assert "Seq Scan" not in plan.scans(table), str(plan)
    assert index is None or index in plan.indexes(), str(plan)
    assert plan.buffers <= buffers, str(plan)


async def test_one_is_put_found_and_taken_away_by_its_address(explaining: Explaining) -> None:
    store = RecipientStore(explaining)
    assert await store.put_suppression("default", BAN, "key:1") is not None
    assert await store.delete_suppression("default", BAN) is not None
    for plan in explaining.plans:
        assert_by_index(plan, "one_suppression_per_source", buffers=80)


async def test_what_is_in_flight_is_counted_from_what_is_in_hand(explaining: Explaining) -> None:
    count = await RecipientStore(explaining).count_in_flight("default", Ban("EMAIL", "a1@example.com", "", "OPTED_OUT"))
    assert count == COUNT / 1000
    assert_by_index(explaining.plan, "notifications_leases", buffers=120)


@pytest.mark.parametrize(
    ("filter_", "index", "buffers"),
    [
        (Filter(), None, SORTED),
        (Filter("EMAIL", "a20@example.com"), "one_suppression_per_source", 30),
        (Filter(source="COMPLAINED"), "suppressions_by_source", 150),
        (Filter(source="COMPLAINED", category="c4"), "suppressions_by_source", 150),
        (Filter(source="BOUNCED"), None, SORTED),
    ],
    ids=str,
)
async def test_a_page_reads_what_it_shows(
    explaining: Explaining, filter_: Filter, index: str | None, buffers: int
) -> None:
    rows, _ = await RecipientStore(explaining).list_suppressions("default", filter_, Page(20))
    assert rows or filter_.category
    assert_by_index(explaining.plan, index, buffers)


async def test_a_small_tenants_page_is_not_read_past_a_large_ones_rows(explaining: Explaining) -> None:
    await RecipientStore(explaining).list_suppressions("tenant-3", Filter(), Page(1_000))
    assert_by_index(explaining.plan, "suppressions_newest", buffers=1_200)


async def test_what_a_source_brought_is_taken_away_by_its_index(explaining: Explaining) -> None:
    order = Order("BOUNCED", datetime(2020, 1, 1, tzinfo=UTC), 100, dry_run=False)
    scan = Scan(NEWEST, OLDEST)
    report = await RecipientStore(explaining).delete_suppressions("default", order, scan)
    assert (report.deleted, report.remaining.count, report.remaining.at_least) == (100, 10_000, True)
    assert isinstance(report.end, UUID)
    # What remains is counted up to 10,000.
    assert_by_index(explaining.plan, "suppressions_by_source", buffers=12_000)
