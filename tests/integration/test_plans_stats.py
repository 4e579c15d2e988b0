"""What GetQueueStats and the doctor cost where 200,000 notifications have ended: little."""

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import asyncpg
import pytest

from sandbox.postgres import Postgres
from services.scheduler.rpc import Scheduler
from services.scheduler.store import Store
from shared.doctor import Bounds, diagnose
from shared.migrations import migrate
from tests.plans import Explaining
from tests.recipients import Connection

FINISHED, REPORTED, OPEN = 200_000, 50_000, 100
BUFFERS = 12 * OPEN
DOCTOR = 30_000  # of the 5,000 that were accepted last, each end's event is looked up
TABLES = ("notifications", "webhook_events", "webhook_deliveries")

NOTIFICATIONS = """
INSERT INTO notifyqueue.notifications (
  tenant_id, idempotency_key, fingerprint, channel, address, priority, max_attempts, attempt_count, due_at,
  next_attempt_at, status, finished_at, claim_token, worker_id, lease_expires_at
)
SELECT 'default', $2::text || n, '', 'EMAIL', 'a' || n % 1000, 2, 5, 1, now(),
  now() + CASE WHEN n % 2 = 0 THEN interval '1 h' ELSE '0' END, $2,
  CASE WHEN $2 = 'SENT' THEN now() END, held.token, held.token, CASE WHEN held.token IS NOT NULL THEN now() END
FROM generate_series(1, $1) AS n
CROSS JOIN (SELECT CASE WHEN $2 = 'PROCESSING' THEN '00000000-0000-0000-0000-000000000007'::uuid END AS token) AS held
"""
EVENTS = """
INSERT INTO notifyqueue.webhook_events (
  tenant_id, notification_id, status, redrive_count, attempt_count, channel, labels, occurred_at, fanned_out_at
)
SELECT 'default', gen_random_uuid(), 'SENT', 0, 1, 'EMAIL', '{}', now(), CASE WHEN $2 THEN now() END
FROM generate_series(1, $1) AS n
"""
DELIVERIES = """
INSERT INTO notifyqueue.webhook_deliveries (event_id, endpoint_id, tenant_id, delivered_at)
SELECT gen_random_uuid(), '00000000-0000-0000-0000-000000000007', 'default', CASE WHEN $2 THEN now() END
FROM generate_series(1, $1) AS n
"""


@pytest.fixture(
    scope="module",
    params=[("postgres", True), ("postgres_15", False)],
    ids=["18, analysed while nothing had ended", "15, never analysed"],
)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    name, analysed = request.param
    server: Postgres = request.getfixturevalue(name)
    asyncio.run(execute(server.url, "CREATE DATABASE ended"))
    asyncio.run(migrate(server.url_of("ended")))
    asyncio.run(fill(server.url_of("ended"), analysed=analysed))
    yield server.url_of("ended")
    asyncio.run(execute(server.url, "DROP DATABASE ended WITH (FORCE)"))


async def execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(statement)
    await connection.close()


async def fill(url: str, *, analysed: bool) -> None:
    connection = await asyncpg.connect(url)
    for table in TABLES:
        await connection.execute(f"ALTER TABLE notifyqueue.{table} SET (autovacuum_enabled = off)")
    for status in ("PENDING", "PROCESSING"):
        await connection.execute(NOTIFICATIONS, OPEN, status)
    for statement in (EVENTS, DELIVERIES):
        await connection.execute(statement, OPEN, False)
    if analysed:
        await connection.execute("ANALYZE")
    await connection.execute(NOTIFICATIONS, FINISHED, "SENT")
    for statement in (EVENTS, DELIVERIES):
        await connection.execute(statement, REPORTED, True)
    await connection.close()


@pytest.fixture
async def connection(url: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def test_every_statement_of_the_stats_reads_what_is_open_and_nothing_that_has_ended(
    connection: Connection,
) -> None:
    asked = set(re.findall(r"self\._store\.(\w+)\(", inspect.getsource(Scheduler.GetQueueStats)))
    assert asked == {"read_lane_stats", "read_lanes", "read_totals", "read_webhook_stats", "read_workers"}
    for tenant in ("default", None):
        explaining = Explaining(connection, generic=False)
        store = Store(explaining)
        lanes = {lane.channel: lane for lane in await store.read_lane_stats(tenant)}
        assert (lanes["EMAIL"].due.count, lanes["EMAIL"].processing.count) == (OPEN // 2, OPEN)
        assert (await store.read_totals(tenant))["EMAIL", "SENT"].count == REPORTED + OPEN
        webhooks = await store.read_webhook_stats(tenant)
        assert (webhooks.unassigned.count, webhooks.pending.count) == (OPEN, OPEN)
        await store.read_lanes()
        await store.read_workers()
        assert len(explaining.plans) == len(asked)
        for plan in explaining.plans:
            assert "Seq Scan" not in {scan for table in TABLES for scan in plan.scans(table)}, plan
            assert plan.buffers <= BUFFERS, plan


async def test_every_statement_of_the_doctor_is_bounded(connection: Connection) -> None:
    explaining = Explaining(connection, generic=False)
    moment, none = timedelta(milliseconds=1), timedelta()
    always = Bounds(none, none, moment, soon=none, late=none, long=none, pause=none, sweep=none, dead_rows=0)
    found = {finding.check.name for finding in await diagnose(explaining, always)}
    assert found >= {"stranded_lanes", "expired_leases", "events_unassigned", "ends_without_event", "retention_lag"}
    assert "unmade" not in found
    for plan in explaining.plans:
        assert "Seq Scan" not in {scan for table in TABLES for scan in plan.scans(table)}, plan
        assert plan.buffers <= DOCTOR, plan
