"""The scheduler's statements keep their plans: with and without statistics, for any arguments, on 18 and 15.

Each runs on 120,000 notifications. What it may read follows from what it answers, not from what there is.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg
import pytest

from sandbox.postgres import Postgres
from services.scheduler.accept_store import AcceptStatements
from services.scheduler.bulk import Ended
from services.scheduler.changes import By
from services.scheduler.judging import Candidate, candidate
from services.scheduler.listing import OLDEST, SCANNED, Filter, Scan
from services.scheduler.notification import Request
from services.scheduler.redrives import Dead
from services.scheduler.statistics import BOUND, Count
from services.scheduler.store import RARE_STATUSES, Store
from tests.databases import ANALYSED, FRESH, filled
from tests.plans import Explaining, Plan

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

TABLE = "notifications"
ROWS = 120_000
GROUP = 500
PAGE = 50
LAST = datetime(9999, 1, 1, tzinfo=UTC)


def id_of(number: int) -> UUID:
    """As NOTIFICATIONS numbers them."""
    return UUID(f"{1_700_000_000_000 + number:012x}70008000{number:012x}")


# Below what other tests wrote and took back, whose dead entries are still there.
ALL = Scan(id_of(ROWS + 1), OLDEST)

# One row in ten is another tenant's, one in 1,200 a small tenant's; of each rare status there is one in a thousand.
# The first third was a campaign, to one address; most of the rest waits, and most of what waits is due.
NOTIFICATIONS = f"""
INSERT INTO notifyqueue.notifications (
  id, tenant_id, idempotency_key, fingerprint, channel, address, priority, reference, status, due_at, next_attempt_at,
  max_attempts, expiries, finished_at, failure_reason, claim_token, worker_id, lease_expires_at, subscriber
)
SELECT (lpad(to_hex(1700000000000 + n), 12, '0') || '70008000' || lpad(to_hex(n), 12, '0'))::uuid,
  CASE WHEN n % 1200 = 0 THEN 'small' WHEN n % 10 = 0 THEN 'other' ELSE 'default' END, 'key-' || n, '', 'EMAIL',
  CASE WHEN n <= {ROWS} / 3 THEN 'campaign@example.com' ELSE 'a' || n % 5000 || '@example.com' END, 1 + n % 3,
  CASE WHEN n <= {ROWS} / 3 THEN 'campaign' WHEN n % 2 = 0 THEN 'order-' || n END, said.status, said.at, said.at, 5,
  CASE WHEN n % 1000 = 7 THEN 2 ELSE 0 END, CASE WHEN said.status NOT IN ('PENDING', 'PROCESSING') THEN now() END,
  CASE said.status
    WHEN 'FAILED' THEN 'MESSAGE_REJECTED' WHEN 'DEAD_LETTERED' THEN 'ATTEMPTS_EXHAUSTED'
    WHEN 'SUPPRESSED' THEN 'OPTED_OUT'
  END,
  held.token, held.token, CASE WHEN held.token IS NOT NULL THEN now() END, 's' || n % 5000
FROM generate_series(1, {ROWS}) AS n
CROSS JOIN LATERAL (
  SELECT CASE n % 1000
    WHEN 1 THEN 'FAILED' WHEN 2 THEN 'DEAD_LETTERED' WHEN 3 THEN 'CANCELLED' WHEN 4 THEN 'EXPIRED'
    WHEN 5 THEN 'SUPPRESSED' WHEN 6 THEN 'PROCESSING'
    ELSE CASE WHEN n <= 10000 THEN 'SENT' ELSE 'PENDING' END
  END AS status, now() + interval '1 minute' * CASE WHEN n % 8 = 0 THEN n ELSE -n END AS at
) AS said
CROSS JOIN LATERAL (SELECT CASE WHEN said.status = 'PROCESSING' THEN gen_random_uuid() END AS token) AS held
"""
CONTENTS = """
INSERT INTO notifyqueue.notification_contents SELECT id, '{}' FROM notifyqueue.notifications
"""
SUPPRESSIONS = """
INSERT INTO notifyqueue.suppressions (tenant_id, channel, address, category, source)
SELECT 'default', 'EMAIL', 'gone' || n || '@example.com', CASE WHEN n % 2 = 0 THEN 'news' ELSE '' END, 'BOUNCED'
FROM generate_series(1, 30000) AS n
"""
LIMITED = "small"
EVENTS = """
INSERT INTO notifyqueue.webhook_events (
  tenant_id, notification_id, status, redrive_count, attempt_count, channel, labels, occurred_at, fanned_out_at
)
SELECT 'default', gen_random_uuid(), 'SENT', 0, 1, 'EMAIL', '{}', now(), CASE WHEN n % 1000 > 0 THEN now() END
FROM generate_series(1, 30000) AS n
"""
DELIVERIES = """
INSERT INTO notifyqueue.webhook_deliveries (
  event_id, endpoint_id, tenant_id, delivered_at, given_up_at, give_up_reason
)
SELECT gen_random_uuid(), gen_random_uuid(), 'default', CASE WHEN n % 1000 > 1 THEN now() END,
  CASE WHEN n % 1000 = 1 THEN now() END, CASE WHEN n % 1000 = 1 THEN 'EXHAUSTED' END
FROM generate_series(1, 30000) AS n
"""
# More than one look takes: as if nobody had merged for long.
DELTAS = f"""
INSERT INTO notifyqueue.status_deltas (tenant_id, channel, status, count)
SELECT CASE WHEN n % 10 = 0 THEN 'other' ELSE 'default' END, 'EMAIL', 'SENT', 1
FROM generate_series(1, {6 * BOUND}) AS n
"""
TOTALS = """
INSERT INTO notifyqueue.status_totals (tenant_id, channel, status, count)
SELECT 'tenant-' || n, channel, 'SENT', 1
FROM generate_series(1, 10000) AS n, unnest('{EMAIL,SMS,PUSH}'::text[]) AS channel
"""


async def fill(connection: "Connection") -> None:
    await connection.execute("INSERT INTO notifyqueue.tenants (id) VALUES ('other'), ('small')")
    await connection.execute(
        "UPDATE notifyqueue.tenants SET accept_rate = 10, accept_burst = 10 WHERE id = $1", LIMITED
    )
    for statement in (NOTIFICATIONS, CONTENTS, SUPPRESSIONS, EVENTS, DELIVERIES, DELTAS, TOTALS):
        await connection.execute(statement)


@pytest.fixture(scope="module", params=["postgres", "postgres_15"])
def server(request: pytest.FixtureRequest) -> Postgres:
    found: Postgres = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module", params=[FRESH, ANALYSED], ids=["fresh", "analysed"])
def url(server: Postgres, request: pytest.FixtureRequest) -> str:
    """Of a database that tests only look at."""
    return asyncio.run(filled(server, "plans_scheduler", fill, request.param))


@pytest.fixture
async def connection(url: str) -> AsyncIterator["Connection"]:
    """In a transaction that leaves no trace."""
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield connection
    finally:
        await transaction.rollback()
        await connection.close()


@pytest.fixture(params=[False, True], ids=["custom", "generic"])
def explaining(connection: "Connection", request: pytest.FixtureRequest) -> Explaining:
    return Explaining(connection, generic=request.param)


@pytest.fixture
def store(explaining: Explaining) -> Store:
    return Store(explaining)


def assert_by_index(plan: Plan, *indexes: str, buffers: int) -> None:
    """Reads notifications by one of these indexes, in its order, and no more than so many pages.

    What a page shows is sorted once more, for its rows are joined to the end of their scan.
    """
    assert "Seq Scan" not in plan.scans(TABLE), plan
    assert plan.indexes() - {"tenants_pkey"} <= set(indexes), plan
    assert plan.sorted_rows() <= PAGE, plan
    assert plan.buffers <= buffers, plan


def asked(key: str, tenant: str = "default") -> Candidate:
    content = {"subject": "Hello", "text": "How are you?"}
    due = timedelta(hours=1)
    return candidate(
        Request(tenant, key, "EMAIL", "someone@example.com", content, 2, due, None, False, "", "order", {})
    )


@pytest.mark.parametrize("size", [1, GROUP])
async def test_keys_are_looked_up_one_by_one(store: Store, explaining: Explaining, size: int) -> None:
    await store.look_up_keys([asked(f"key-{number * 2}", LIMITED).request for number in range(size)])
    indexes = (
        *("notifications_idempotency_key", "one_suppression_per_source", "accept_buckets_pkey"),
        *("one_template_per_name", "template_versions_pkey", "templates_pkey"),  # not for these: test_plans_templates
        *("one_subscriber_per_name", "subscribers_newest", "one_suppression_of_a_subscriber_per_source"),  # nor these
    )
    assert_by_index(explaining.plan, *indexes, buffers=10 + 12 * size)
    assert "Seq Scan" not in explaining.plan.scans("suppressions"), explaining.plan


async def test_without_a_limit_no_bucket_is_looked_at(store: Store, explaining: Explaining) -> None:
    await store.look_up_keys([asked(f"key-{number}").request for number in range(GROUP)])
    looks = [node for node in explaining.plan.nodes("Scan") if node.get("Relation Name") == "accept_buckets"]
    assert all(node["Actual Loops"] == 0 for node in looks), explaining.plan


async def test_buckets_are_held_and_charged_by_key(connection: "Connection", explaining: Explaining) -> None:
    store = AcceptStatements(explaining)
    await store.make_buckets([LIMITED, "other"])
    assert await store.lock_buckets([LIMITED, "other"], pass_held=False) == {LIMITED, "other"}
    await store.charge_buckets({LIMITED: LAST}, {LIMITED: 1})
    for plan in explaining.plans[1:]:
        assert plan.buffers <= 30, plan


@pytest.mark.parametrize("size", [1, GROUP])
async def test_rows_are_read_one_by_one(
    store: Store, explaining: Explaining, connection: "Connection", size: int
) -> None:
    rows = await connection.fetch(f"SELECT tenant_id, id FROM notifyqueue.notifications LIMIT {size}")
    await store.read_notifications([(row["tenant_id"], row["id"]) for row in rows])
    assert_by_index(explaining.plan, "notifications_pkey", "notifications_newest", buffers=10 + 6 * size)


async def test_a_thousand_watched_ones_are_looked_up_one_by_one(
    store: Store, explaining: Explaining, connection: "Connection"
) -> None:
    rows = await connection.fetch("SELECT id, revision FROM notifyqueue.notifications LIMIT 1000")
    known = sorted((row["id"], row["revision"] - (place == 0)) for place, row in enumerate(rows))
    assert len(await store.read_changed(known)) == 1
    assert_by_index(explaining.plan, "notifications_pkey", buffers=10 + 5 * 1000)


async def test_an_id_is_found_by_its_key(store: Store, explaining: Explaining) -> None:
    assert await store.find_id("default", "key-77")
    assert_by_index(explaining.plan, "notifications_idempotency_key", buffers=6)


async def test_a_cancellation_takes_one_row(store: Store, explaining: Explaining) -> None:
    found = await store.find_id("default", f"key-{ROWS - 1}")
    assert found
    await store.cancel_notification("default", found, "", "")
    plan = explaining.plans[-1]
    assert_by_index(plan, "notifications_pkey", "notifications_newest", buffers=300)


@pytest.mark.parametrize("size", [1, GROUP])
async def test_a_group_is_written_without_reading_the_table(store: Store, explaining: Explaining, size: int) -> None:
    await store.insert_notifications(half_taken(size), 5)
    plan = explaining.plan
    assert not plan.scans(TABLE), plan
    assert plan.sorted_rows() == size, plan
    assert plan.buffers <= 150 + 20 * size, plan


@pytest.mark.parametrize("size", [1, GROUP])
async def test_what_was_written_is_looked_through_once(store: Store, explaining: Explaining, size: int) -> None:
    await store.insert_notifications(half_taken(size), 5)
    reads = [node for node in explaining.plan.nodes("CTE Scan") if node["CTE Name"] == "written"]
    # By the answer, and hashed for the contents: once for each of them would be quadratic.
    assert [node["Actual Loops"] for node in reads] == [1, 1], explaining.plan


def half_taken(size: int) -> list[Candidate]:
    return [asked(f"key-{ROWS - size // 2 + number}") for number in range(size)]


# What leads a list -> the indexes that have its order. Where one tenant has nearly everything, all of it is its own.
NEWEST_FIRST = ("notifications_newest", "notifications_pkey")
LISTS: Mapping[str, tuple[Filter, Sequence[str]]] = {
    "all": (Filter(), NEWEST_FIRST),
    "a common status": (Filter(status="PENDING"), NEWEST_FIRST),
    "the address of few": (Filter(channel="EMAIL", address="a4001@example.com"), ["notifications_by_address"]),
    "the address of many": (Filter(channel="EMAIL", address="campaign@example.com"), ["notifications_by_address"]),
    "no such address": (Filter(channel="EMAIL", address="none@example.com"), ["notifications_by_address"]),
    "the reference of one": (Filter(reference=f"order-{ROWS - 2}"), ["notifications_by_reference"]),
    "the reference of many": (Filter(reference="campaign"), ["notifications_by_reference"]),
    "no such reference": (Filter(reference="none"), ["notifications_by_reference"]),
    "the subscriber of few": (Filter(subscriber="s4001"), ["notifications_by_subscriber"]),
    **{status: (Filter(status=status), ["notifications_by_rare_status"]) for status in RARE_STATUSES},
}


@pytest.mark.parametrize("which", LISTS)
async def test_a_page_reads_what_it_shows(store: Store, explaining: Explaining, which: str) -> None:
    filter_, indexes = LISTS[which]
    # As many as there are: a page that is short looks for its end, too.
    size = min(PAGE, len((await store.list_notifications("default", filter_, ALL, PAGE))[0]) or 1)
    explaining.plans.clear()
    await store.list_notifications("default", filter_, ALL, size)
    assert_by_index(explaining.plan, *indexes, buffers=2 * PAGE)


@pytest.mark.parametrize("which", ["all", "the address of many", "the reference of many", "FAILED"])
async def test_a_page_far_from_the_start_costs_what_the_first_does(
    store: Store, explaining: Explaining, which: str
) -> None:
    filter_, indexes = LISTS[which]
    await store.list_notifications("default", filter_, Scan(id_of(ROWS // 20), OLDEST), 1)
    assert_by_index(explaining.plan, *indexes, buffers=10)


async def test_page_1000_costs_what_page_1_does(store: Store, explaining: Explaining, connection: "Connection") -> None:
    last: UUID = await connection.fetchval(
        "SELECT id FROM notifyqueue.notifications WHERE tenant_id = 'default' ORDER BY id DESC OFFSET $1 LIMIT 1",
        999 * PAGE - 1,
    )
    for before in (ALL.before, last):
        found, _ = await store.list_notifications("default", Filter(), Scan(before, OLDEST), PAGE)
        assert len(found) == PAGE
    first, thousandth = explaining.plans
    assert thousandth.buffers <= first.buffers + 10, thousandth


@pytest.mark.parametrize("which", LISTS)
async def test_the_end_of_a_scan_is_found_in_the_same_index(store: Store, explaining: Explaining, which: str) -> None:
    filter_, indexes = LISTS[which]
    nothing = replace(filter_, created_since=LAST)
    found, _ = await store.list_notifications("default", nothing, ALL, PAGE)
    assert not found
    # Once for the page that found nothing, once for its end.
    assert_by_index(explaining.plan, *indexes, buffers=2 * SCANNED // 5)


@pytest.mark.parametrize(
    ("filter_", "ends"),
    [
        (Filter(channel="SMS"), True),
        (Filter(channel="SMS", reference="campaign"), True),
        (Filter(channel="EMAIL", address="campaign@example.com", status="SUPPRESSED", created_since=LAST), True),
        (Filter(channel="SMS", address="a4001@example.com"), False),
    ],
    ids=["all", "reference", "address", "an address of few"],
)
async def test_a_page_that_finds_nothing_stops_at_its_bound(
    store: Store, explaining: Explaining, filter_: Filter, ends: bool
) -> None:
    found, end = await store.list_notifications("default", filter_, ALL, PAGE)
    assert (found, end is not None) == ([], ends)
    reads = [node for node in explaining.plan.nodes("Scan") if node.get("Relation Name") == TABLE]
    assert all(read["Actual Rows"] <= SCANNED for read in reads), explaining.plan
    assert explaining.plan.buffers <= 2 * SCANNED // 5, explaining.plan


async def test_a_full_page_does_not_look_for_the_end_of_its_scan(store: Store, explaining: Explaining) -> None:
    _, end = await store.list_notifications("default", Filter(), ALL, PAGE)
    assert end is None
    reads = [node for node in explaining.plan.nodes("Scan") if node.get("Relation Name") == TABLE]
    assert sorted(read["Actual Rows"] * read["Actual Loops"] for read in reads) == [0, PAGE], explaining.plan


PENDING_BY = {which: what for which, what in LISTS.items() if which not in RARE_STATUSES}


@pytest.mark.parametrize("which", PENDING_BY)
async def test_what_is_pending_is_found_by_what_leads(store: Store, explaining: Explaining, which: str) -> None:
    filter_, indexes = PENDING_BY[which]
    ids, _ = await store.find_pending("default", filter_, ALL)
    plan = explaining.plan
    assert "Seq Scan" not in plan.scans(TABLE), plan
    assert plan.indexes() <= set(indexes), plan
    reads = [node for node in plan.nodes("Scan") if node.get("Relation Name") == TABLE]
    assert all(read["Actual Rows"] <= SCANNED for read in reads), plan
    few = "few" in which or "one" in which or "no such" in which
    assert plan.buffers <= (100 if few else SCANNED // 4), plan
    assert few or ids


@pytest.mark.parametrize("size", [1, GROUP])
async def test_what_is_cancelled_is_taken_one_by_one(
    store: Store, explaining: Explaining, connection: "Connection", size: int
) -> None:
    rows = await connection.fetch(
        f"SELECT id FROM notifyqueue.notifications WHERE status = 'PENDING' AND tenant_id = 'default' LIMIT {size}"
    )
    assert await store.cancel_notifications("default", [row["id"] for row in rows], "", "") == Ended(size)
    plan = explaining.plan
    assert "Seq Scan" not in plan.scans(TABLE), plan
    assert plan.indexes() <= {"notifications_pkey", "notifications_newest"}, plan
    assert plan.sorted_rows() == 0, plan
    # Each is written in every index it was in, and its event and its entry in theirs.
    assert plan.buffers <= 300 + 80 * size, plan


async def test_a_new_schedule_is_judged_and_given_by_one_row(store: Store, explaining: Explaining) -> None:
    found = await store.find_id("default", f"key-{ROWS - 1}")
    assert found
    assert await store.read_schedule("default", found)
    assert_by_index(explaining.plans[-1], "notifications_pkey", "notifications_newest", buffers=10)
    moved = await store.reschedule_notification("default", found, LAST, 3, actor="", note="")
    assert moved
    assert (moved.due_at, moved.priority) == (LAST, 3)
    assert_by_index(explaining.plans[-1], "notifications_pkey", "notifications_newest", buffers=300)


@pytest.mark.parametrize("status", ["FAILED", "DEAD_LETTERED"])
@pytest.mark.parametrize("which", ["all", "the address of many", "the reference of many", "no such reference"])
async def test_what_is_dead_is_found_by_its_status(
    store: Store, explaining: Explaining, which: str, status: str
) -> None:
    filter_, _ = LISTS[which]
    found = await store.find_dead("default", replace(filter_, status=status), ALL)
    assert bool(found.dead) == ("no such" not in which)
    plan = explaining.plan
    assert not {"Seq Scan"} & (plan.scans(TABLE) | plan.scans("notification_contents")), plan
    assert plan.indexes() <= {"notifications_by_rare_status", "notification_contents_pkey"}, plan
    dead = ROWS // 1_000
    assert all(read["Actual Rows"] <= dead for read in plan.nodes("Scan") if read.get("Relation Name") == TABLE), plan
    # Each row, and its content by key.
    assert plan.buffers <= 20 + 8 * dead, plan


@pytest.mark.parametrize("size", [1, GROUP])
async def test_what_is_redriven_is_taken_one_by_one(
    store: Store, explaining: Explaining, connection: "Connection", size: int
) -> None:
    rows = await connection.fetch(
        "UPDATE notifyqueue.notifications"
        " SET status = 'FAILED', finished_at = now(), failure_reason = 'MESSAGE_REJECTED' WHERE id IN (SELECT id"
        f" FROM notifyqueue.notifications WHERE status = 'PENDING' AND tenant_id = 'default' LIMIT {size})"
        " RETURNING id, revision"
    )
    turns = {Dead(row["id"], row["revision"]): timedelta() for row in rows}
    tried = await store.redrive_notifications("default", turns, 5, By("", ""), pass_locked=False)
    assert [one.obstacle for one in tried.values()] == [None] * size
    plan = explaining.plan
    assert "Seq Scan" not in plan.scans(TABLE), plan
    assert plan.indexes() <= {"notifications_pkey", "notifications_newest"}, plan
    assert plan.sorted_rows() == 0, plan
    # Each is written in every index it was in, its entry in its own, and its content is looked for.
    assert plan.buffers <= 300 + 80 * size, plan


# Not analysed and generic: the scheduler's login has no generic plans (shared/roles.py), for this would be one of them.
@pytest.mark.parametrize(
    ("url", "explaining"),
    [(FRESH, False), (FRESH, True), (ANALYSED, False)],
    ids=["fresh-custom", "fresh-generic", "analysed-custom"],
    indirect=True,
)
async def test_a_small_tenants_page_does_not_read_past_the_others(store: Store, explaining: Explaining) -> None:
    await store.list_notifications("small", Filter(), ALL, PAGE)
    assert_by_index(explaining.plan, "notifications_newest", buffers=2 * PAGE)


async def test_lanes_are_counted_by_their_indexes_up_to_the_bound(store: Store, explaining: Explaining) -> None:
    found = {lane.channel: lane for lane in await store.read_lane_stats("default")}
    assert found["EMAIL"].due == Count(BOUND, at_least=True)
    plan = explaining.plan
    assert "Seq Scan" not in plan.scans(TABLE), plan
    assert plan.indexes() == {
        "notifications_claim",
        "notifications_suspects",
        "notifications_leases",
        "notifications_gate",
    }, plan
    # Three classes, due and scheduled; where there are fewer than the bound, they may be read in any order.
    assert plan.sorted_rows() <= 3 * BOUND, plan
    assert plan.buffers <= 6 * BOUND, plan


async def test_webhooks_are_counted_by_their_indexes(store: Store, explaining: Explaining) -> None:
    await store.read_webhook_stats("default")
    plan = explaining.plan
    assert "Seq Scan" not in plan.scans("webhook_events"), plan
    assert {"webhook_events_fan_out", "webhook_deliveries_due"} <= plan.indexes(), plan


async def test_deliveries_given_up_are_counted_by_an_index(store: Store, explaining: Explaining) -> None:
    await store.read_webhook_stats("default")
    assert "Seq Scan" not in explaining.plan.scans("webhook_deliveries"), explaining.plan


async def test_totals_are_read_by_tenant_and_what_is_not_merged_up_to_the_bound(
    store: Store, explaining: Explaining
) -> None:
    assert await store.read_totals("tenant-7777") == {
        (channel, "SENT"): Count(1, at_least=True) for channel in ("EMAIL", "SMS", "PUSH")
    }
    plan = explaining.plan
    assert "Seq Scan" not in plan.scans("status_deltas"), plan
    assert plan.buffers <= 200, plan
