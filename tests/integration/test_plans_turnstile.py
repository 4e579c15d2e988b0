"""The turnstile's statements read what they are about: with and without statistics, for any arguments, on 18 and 15."""

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest

from sandbox.postgres import Postgres
from services.worker.claim import Recipient
from services.worker.turnstile import Window
from services.worker.turnstile_store import Gate, Turn, sql
from shared.mending import sql as mending
from tests.conftest import MakeDatabase
from tests.databases import ANALYSED, FRESH, filled
from tests.plans import Explaining, Plan
from tests.recipients import Connection

LEASE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
TOKEN = UUID(int=7)
TABLES = ("notifications", "notification_history", "recipient_reservations", "recipient_gates")
HOT = Recipient("default", "EMAIL hot")
SOME = [HOT, *(Recipient("default", f"EMAIL {number}") for number in range(63))]

# 10,000 wait for a hot recipient and one for each of 5,000 others; 200 claims are held; the rest is done.
FILL = (
    """
    INSERT INTO notifyqueue.notifications (
      tenant_id, idempotency_key, fingerprint, channel, address, priority, max_attempts, due_at, next_attempt_at,
      status, waiting, granted, limit_key, finished_at, attempt_count, claim_token, worker_id, lease_expires_at
    )
    SELECT 'default', n::text, '', 'EMAIL', new.address, 1 + n % 3, 5, now(), now(), new.status,
      n <= 15000, new.status = 'PROCESSING' AND n % 2 = 0, 'EMAIL ' || new.address,
      CASE WHEN new.status = 'SENT' THEN now() END, (new.status = 'PROCESSING')::int, held.token, held.token,
      CASE WHEN new.status = 'PROCESSING' THEN now() END
    FROM (
      SELECT n, CASE WHEN n <= 10000 OR n > 15000 AND n % 100 = 0 THEN 'hot' ELSE (n % 5000)::text END AS address,
        CASE WHEN n <= 15000 THEN 'PENDING' WHEN n <= 15200 THEN 'PROCESSING' ELSE 'SENT' END AS status
      FROM generate_series(1, 60000) AS n
    ) AS new
    CROSS JOIN LATERAL (SELECT CASE WHEN new.status = 'PROCESSING' THEN $1::uuid END AS token) AS held
    """,
    """
    INSERT INTO notifyqueue.recipient_gates (tenant_id, limit_key, channel, opens_at)
    SELECT DISTINCT n.tenant_id, n.limit_key, 'EMAIL',
      now() + CASE WHEN n.address < '2' THEN interval '-1 s' ELSE '1 h' END
    FROM notifyqueue.notifications AS n WHERE n.waiting
    """,
    """
    INSERT INTO notifyqueue.recipient_reservations (notification_id, tenant_id, limit_key, started_at, leaves_at)
    SELECT n.id, n.tenant_id, n.limit_key, now() - interval '1 h', now() - interval '59 min'
    FROM notifyqueue.notifications AS n WHERE n.status = 'SENT'
    """,
    """
    INSERT INTO notifyqueue.recipient_reservations (notification_id, tenant_id, limit_key, started_at, leaves_at)
    SELECT n.id, n.tenant_id, n.limit_key, now(), now() + interval '1 min'
    FROM notifyqueue.notifications AS n WHERE n.status = 'PROCESSING'
    """,
    """
    INSERT INTO notifyqueue.notification_history (notification_id, kind, claim_token, worker_id)
    SELECT n.id, 'WAITED', n.id, n.id FROM notifyqueue.notifications AS n WHERE n.status = 'SENT'
    """,
    "UPDATE notifyqueue.tenants SET recipient_limit = 250, recipient_window = '1 minute'",
)


async def fill(connection: Connection) -> None:
    first, *others = FILL
    await connection.execute(first, TOKEN)
    for statement in others:
        await connection.execute(statement)


@pytest.fixture(params=["postgres", "postgres_15"])
async def server(request: pytest.FixtureRequest) -> Postgres:
    found: Postgres = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=[FRESH, ANALYSED], ids=["fresh", "analysed"])
async def connection(server: Postgres, request: pytest.FixtureRequest) -> AsyncIterator[Connection]:
    """Filled once: each test undoes what it does."""
    connection = await asyncpg.connect(await filled(server, "plans_turnstile", fill, request.param))
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield connection
    finally:
        await transaction.rollback()
        await connection.close()


@pytest.fixture(params=[False, True], ids=["custom", "generic"])
def explaining(connection: Connection, request: pytest.FixtureRequest) -> Explaining:
    return Explaining(connection, generic=request.param)


async def held(connection: Connection) -> list[UUID]:
    rows = await connection.fetch("SELECT id FROM notifyqueue.notifications WHERE status = 'PROCESSING' ORDER BY id")
    return [row["id"] for row in rows]


def is_frugal(plan: Plan, *indexes: str, most: int) -> None:
    shown = [(node.get("Relation Name"), node.get("Index Name"), node["Actual Rows"]) for node in plan.nodes("Scan")]
    for table in TABLES:
        assert "Seq Scan" not in plan.scans(table), shown
    assert plan.indexes() >= set(indexes), shown
    assert plan.buffers <= most, (plan.buffers, shown)


async def test_windows_are_read_by_recipient_and_time(explaining: Explaining) -> None:
    windows = await Turn(explaining).read_windows(SOME)
    assert len(windows) == 64
    assert windows[HOT][0].queue
    is_frugal(
        explaining.plan,
        "recipient_reservations_window",
        "notifications_gate",
        "notifications_granted",
        most=24 * len(SOME),
    )


async def test_claims_are_held_by_key(connection: Connection, explaining: Explaining) -> None:
    ids = await held(connection)
    await explaining.fetch(sql["hold_claims"], ids, [TOKEN] * len(ids))
    await explaining.fetch(sql["find_standing"], ids, [TOKEN] * len(ids))
    for plan in explaining.plans:
        is_frugal(plan, "notifications_pkey", most=10 * len(ids))


async def test_a_group_starts_by_key(connection: Connection, explaining: Explaining) -> None:
    ids = await held(connection)
    window = Window(250, LEASE, {}, frozenset(), queue=False)
    await Turn(explaining).start_admitted(dict.fromkeys(ids, (HOT, window)), LEASE)
    is_frugal(explaining.plan, "notifications_pkey", most=60 * len(ids))


async def test_a_group_is_put_to_wait_by_key(connection: Connection, explaining: Explaining) -> None:
    ids = await held(connection)
    await Turn(explaining).wait_at_gates(dict.fromkeys(ids, HOT))
    is_frugal(explaining.plan, "notifications_pkey", most=60 * len(ids))


async def test_due_gates_are_taken_in_the_order_in_which_they_open(explaining: Explaining) -> None:
    assert len(await Turn(explaining).take_gates("EMAIL", 64)) == 64
    is_frugal(explaining.plan, "recipient_gates_due", "recipient_gates_pkey", most=1_500)
    # Never analysed, a lane's gates are guessed to be few, and may be sorted, all of them: there is nothing larger.
    assert explaining.plan.sorted_rows() in (0, 5_001), explaining.plan


async def test_the_next_gate_is_one_look(connection: Connection, explaining: Explaining) -> None:
    await explaining.fetch(sql["read_next_gate"], "EMAIL")
    is_frugal(explaining.plan, "recipient_gates_due", most=8)


async def test_slots_are_granted_in_the_order_of_the_queue_without_reading_it_all(explaining: Explaining) -> None:
    windows = {recipient: window for recipient, (window, _) in (await Turn(explaining).read_windows(SOME)).items()}
    explaining.plans.clear()
    called = await Turn(explaining).grant_slots(windows)
    assert called[HOT] > 50
    is_frugal(explaining.plan, "notifications_gate", "notifications_pkey", most=60 * called.total())
    assert explaining.plan.sorted_rows() == 0, explaining.plan


async def test_gates_are_set_and_removed_by_key(explaining: Explaining) -> None:
    turn = Turn(explaining)
    window = Window(250, LEASE + SECOND, {}, frozenset(), queue=True)
    await turn.set_gates([Gate(recipient, "EMAIL", SECOND, window) for recipient in SOME])
    assert await turn.remove_gates([*SOME[:2], Recipient("default", "EMAIL nobody")]) == set()
    for plan in explaining.plans:
        is_frugal(plan, most=20 * len(SOME))


async def test_mending_looks_once_at_each_recipient(explaining: Explaining) -> None:
    rows = await explaining.fetch(mending["mend_gates"], "default", "EMAIL 2")
    assert len(rows) == 1000
    is_frugal(explaining.plan, "notifications_gate", "recipient_gates_pkey", most=20 * len(rows))


async def test_a_slot_is_given_back_by_key(connection: Connection, explaining: Explaining) -> None:
    await explaining.fetch(sql["return_slot"], (await held(connection))[0], TOKEN)
    is_frugal(explaining.plan, "notifications_pkey", "recipient_reservations_pkey", most=40)


async def test_a_gate_is_looked_at_by_key(explaining: Explaining) -> None:
    await explaining.fetch(sql["look_at_gate"], *SOME[0])
    is_frugal(explaining.plan, "recipient_gates_pkey", most=40)


async def test_reservations_are_removed_by_their_age(explaining: Explaining) -> None:
    removed = await explaining.fetch(sql["remove_reservations"], SECOND)
    assert len(removed) == 5_000
    is_frugal(explaining.plan, "recipient_reservations_age", most=12 * 5_000)


async def test_a_plan_for_windows_that_is_made_while_all_is_empty_is_the_right_one_later(
    server: Postgres, make_database: MakeDatabase
) -> None:
    connection = await asyncpg.connect(await make_database(server))
    explaining = Explaining(connection, generic=True)  # what is kept
    await Turn(explaining).read_windows(SOME)
    is_frugal(
        explaining.plan, "recipient_reservations_window", "notifications_gate", "notifications_granted", most=1_000
    )
    await connection.close()
