"""The worker's statements keep their plans: with and without statistics, for any arguments, on 18 and 15."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import TypeAlias
from uuid import UUID, uuid4

import asyncpg
import pytest

from sandbox.postgres import Postgres
from services.worker.store import CLAIM, sql
from tests.databases import ANALYSED, FRESH, filled
from tests.plans import Plan, explain

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

TABLE = "notifications"
LEASE = timedelta(minutes=1)
SERVERS = ["postgres", "postgres_15"]

FILL = """
INSERT INTO notifyqueue.notifications (
  tenant_id, idempotency_key, fingerprint, channel, address, priority, max_attempts, due_at, next_attempt_at, expire_at,
  status, finished_at, attempt_count, claim_token, worker_id, lease_expires_at
)
SELECT 'default', n::text, '', 'EMAIL', 'a@example.com', 1 + n % 3, 5, new.due_at, new.due_at,
  CASE WHEN n <= 300 THEN new.due_at + interval '1 second' END, new.status,
  CASE WHEN new.status = 'SENT' THEN now() END, (new.status = 'PROCESSING')::int, held.token, held.token,
  CASE WHEN new.status = 'PROCESSING' THEN now() - interval '1 minute' END
FROM (
  SELECT n, now() + CASE WHEN n <= 20000 THEN interval '-1 hour' ELSE interval '1 day' END AS due_at,
    CASE WHEN n <= 80000 THEN 'PENDING' WHEN n <= 80500 THEN 'PROCESSING' ELSE 'SENT' END AS status
  FROM generate_series(1, 100000) AS n
) AS new
CROSS JOIN LATERAL (SELECT CASE WHEN new.status = 'PROCESSING' THEN $1::uuid END AS token) AS held
"""

CONTENTS = """
INSERT INTO notifyqueue.notification_contents (notification_id, content)
SELECT n.id, '{}' FROM notifyqueue.notifications AS n
"""

SUPPRESSIONS = """
INSERT INTO notifyqueue.suppressions (tenant_id, channel, address, category, source)
SELECT 'default', 'EMAIL', 'gone' || n || '@example.com', '', 'BOUNCED' FROM generate_series(1, 30000) AS n
"""

TOKEN = uuid4()


async def fill(connection: Connection) -> None:
    await connection.execute(FILL, TOKEN)
    await connection.execute(CONTENTS)
    await connection.execute(SUPPRESSIONS)


@pytest.fixture(params=SERVERS)
async def server(request: pytest.FixtureRequest) -> Postgres:
    found: Postgres = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=[FRESH, ANALYSED], ids=["fresh", "analysed"])
async def connection(server: Postgres, request: pytest.FixtureRequest) -> AsyncIterator[Connection]:
    """To a backlog behind and among far more that is scheduled or done, which no test changes."""
    connection = await asyncpg.connect(await filled(server, "plans_worker", fill, request.param))
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture(params=[False, True], ids=["custom", "generic"])
def generic(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


async def held(connection: Connection) -> tuple[list[UUID], list[UUID]]:
    """The 500 claims of one worker."""
    rows = await connection.fetch("SELECT id FROM notifyqueue.notifications WHERE status = 'PROCESSING' ORDER BY id")
    return [row["id"] for row in rows], [TOKEN] * len(rows)


def assert_by_index(plan: Plan, *indexes: str) -> None:
    assert "Seq Scan" not in plan.scans(TABLE), plan
    assert plan.indexes() >= set(indexes), plan


async def test_a_probe_looks_at_the_first_few_of_each_class(connection: Connection, generic: bool) -> None:
    plan = await explain(connection, sql["claim_probe"], ["EMAIL", uuid4(), uuid4(), LEASE], generic=generic)
    assert_by_index(plan, "notifications_claim", "notification_contents_pkey")
    assert "Seq Scan" not in plan.scans("notification_contents") | plan.scans("suppressions"), plan
    assert plan.sorted_rows() <= 24, plan
    assert plan.buffers < 800, plan


@pytest.mark.parametrize("classes", [[3, 2, 1], [1, 2, 3]], ids=["urgent first", "low first"])
async def test_a_claim_walks_its_index_in_order_and_stops(
    connection: Connection, generic: bool, classes: Sequence[int]
) -> None:
    args = ["EMAIL", classes, timedelta(), uuid4(), uuid4(), LEASE, True]
    plan = await explain(connection, CLAIM[64], args, generic=generic)
    assert_by_index(plan, "notifications_claim", "notifications_suspects", "notification_contents_pkey")
    assert "Seq Scan" not in plan.scans("notification_contents") | plan.scans("suppressions"), plan
    assert plan.sorted_rows() == 0, plan
    # 64 rows found and written, each with its index entries: what is scheduled costs nothing.
    assert plan.buffers < 4_000, plan


async def test_the_next_due_time_is_a_look_at_each_class(connection: Connection, generic: bool) -> None:
    plan = await explain(connection, sql["read_next_due"], ["EMAIL", True], generic=generic)
    assert_by_index(plan, "notifications_claim")
    assert plan.buffers < 50, plan


@pytest.mark.parametrize(
    ("statement", "more"),
    [
        ("mark_sent", [["m"] * 500, [None] * 500]),
        (
            "end_unsent",
            [[one] * 500 for one in ("ADDRESS_REJECTED", "x", "ATTEMPT_FAILED", False, "BOUNCED", None)],
        ),
        (
            "retry_later",
            [[LEASE] * 500, ["x"] * 500, ["ATTEMPT_FAILED"] * 500, [False] * 500, [False] * 500, [False] * 500],
        ),
        ("start_attempts", [LEASE]),
        ("renew_leases", [LEASE]),
    ],
)
async def test_a_group_of_500_costs_500_lookups(
    connection: Connection, generic: bool, statement: str, more: Sequence[object]
) -> None:
    ids, tokens = await held(connection)
    plan = await explain(connection, sql[statement], [ids, tokens, *more], generic=generic)
    assert_by_index(plan, "notifications_pkey")
    looked_at = sum(node["Actual Loops"] for node in plan.nodes("Scan") if node.get("Relation Name") == TABLE)
    assert looked_at <= 1_600, plan


async def test_what_was_recorded_is_found_by_key(connection: Connection, generic: bool) -> None:
    ids, tokens = await held(connection)
    args = [ids, tokens, [1] * 500, [None] * 500]
    plan = await explain(connection, sql["find_recorded"], args, generic=generic)
    assert_by_index(plan, "notifications_pkey")


async def test_what_is_held_is_found_by_key(connection: Connection, generic: bool) -> None:
    plan = await explain(connection, sql["find_held"], await held(connection), generic=generic)
    assert_by_index(plan, "notifications_pkey")


async def test_expired_claims_are_found_by_their_lease(connection: Connection, generic: bool) -> None:
    plan = await explain(connection, sql["lock_expired_claims"], [timedelta(), None], generic=generic)
    assert_by_index(plan, "notifications_leases")
    assert plan.sorted_rows() <= 500, plan  # no more than workers hold


async def test_a_token_is_released_among_what_is_held(connection: Connection, generic: bool) -> None:
    plan = await explain(connection, sql["release_token"], [TOKEN, TOKEN], generic=generic)
    assert_by_index(plan, "notifications_leases")


async def test_what_expired_is_found_by_its_time(connection: Connection, generic: bool) -> None:
    plan = await explain(connection, sql["expire_overdue"], [500], generic=generic)
    assert_by_index(plan, "notifications_expiry")
