"""How many wait is counted by the gates' index and up to a bound, however many there are and whoever asks."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from sandbox.postgres import Postgres
from services.scheduler.statistics import BOUND, Count
from services.scheduler.store import Store
from tests.databases import ANALYSED, FRESH, filled
from tests.plans import Explaining
from tests.recipients import Connection

EXACT, MORE, NONE = Count(BOUND, at_least=False), Count(BOUND, at_least=True), Count(0, at_least=False)

# 60,000: most wait for a thousand recipients of one tenant, as many as can be counted for those of a thousand others.
FILL = """
INSERT INTO notifyqueue.notifications (
  tenant_id, idempotency_key, fingerprint, channel, address, priority, max_attempts, due_at, next_attempt_at,
  status, finished_at, waiting, limit_key
)
SELECT said.tenant_id, n, '', said.channel, 'a' || n % 1000, 2, 5, now(), now(),
  CASE WHEN said.sent THEN 'SENT' ELSE 'PENDING' END, CASE WHEN said.sent THEN now() END, said.waits,
  CASE WHEN said.waits THEN said.channel || ' a' || n % 1000 END
FROM generate_series(1, 60000) AS n
CROSS JOIN LATERAL (
  SELECT CASE WHEN n <= 10000 THEN 'tenant-' || n % 1000 ELSE 'large' END AS tenant_id,
    CASE WHEN n <= 10000 THEN 'SMS' ELSE 'EMAIL' END AS channel, n <= 45000 AS waits, n > 52000 AS sent
) AS said
"""


async def fill(connection: Connection) -> None:
    await connection.execute(
        "INSERT INTO notifyqueue.tenants (id) SELECT 'tenant-' || n FROM generate_series(0, 999) AS n"
    )
    await connection.execute("INSERT INTO notifyqueue.tenants (id) VALUES ('large')")
    await connection.execute(FILL)


@pytest.fixture(scope="module", params=["postgres", "postgres_15"])
def server(request: pytest.FixtureRequest) -> Postgres:
    found: Postgres = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module", params=[FRESH, ANALYSED], ids=["fresh", "analysed"])
def url(server: Postgres, request: pytest.FixtureRequest) -> str:
    return asyncio.run(filled(server, "plans_waiting", fill, request.param))


@pytest.fixture
async def connection(url: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture(params=[False, True], ids=["custom", "generic"])
def explaining(connection: Connection, request: pytest.FixtureRequest) -> Explaining:
    return Explaining(connection, generic=request.param)


@pytest.mark.parametrize(
    ("tenant", "waiting", "buffers"),
    [
        ("large", [MORE, NONE, NONE], 4 * BOUND),
        ("tenant-7", [NONE, Count(10, at_least=False), NONE], 3 * BOUND),
        ("default", [NONE, NONE, NONE], 3 * BOUND),
        (None, [MORE, EXACT, NONE], 8 * BOUND),
    ],
)
async def test_who_waits_is_counted_by_the_gates_index_up_to_the_bound(
    explaining: Explaining, tenant: str | None, waiting: list[Count], buffers: int
) -> None:
    found = await Store(explaining).read_lane_stats(tenant)
    assert [lane.waiting for lane in found] == waiting
    plan = explaining.plan
    assert "Seq Scan" not in plan.scans("notifications"), plan
    by_gate = [node for node in plan.nodes("Scan") if node.get("Index Name") == "notifications_gate"]
    assert by_gate
    assert all(node["Actual Rows"] <= BOUND + 1 for node in by_gate), plan
    assert plan.indexes() <= {
        "notifications_gate",
        "notifications_claim",
        "notifications_suspects",
        "notifications_leases",
    }, plan
    assert plan.buffers <= buffers, (plan.buffers, plan)
