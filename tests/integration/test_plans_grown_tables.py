"""What was prepared, and run, while the tables were nearly empty keeps to its indexes when they have grown.

Every statement of every service, by its own login, prepared as in a process that began on a quiet day; then the tables
grow, and nobody has analysed them. Also in a database whose own order of text is a language's.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias
from uuid import UUID, uuid4

import asyncpg
import pytest

from sandbox.postgres import Postgres
from services.scheduler.listing import Filter
from services.scheduler.recipient_store import having, led
from services.scheduler.store import _led, sql
from services.scheduler.subscribers import Place as At
from services.scheduler.suppressions import Filter as BanFilter
from services.worker.store import CLAIM
from shared.migrations import migrate
from shared.roles import SERVICES, create_roles
from tests.conftest import login
from tests.databases import LOGINS, NO_AUTOVACUUM
from tests.plans import Plan, execute_prepared, explain_prepared

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

CHECKOUT = Path(__file__).resolve().parents[2]
T, LOWEST, HIGHEST, LATER = "default", UUID(int=0), UUID(int=2**128 - 1), datetime(9999, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND, MINUTE, MONTH = timedelta(seconds=1), timedelta(minutes=1), timedelta(days=30)
TOKEN = UUID(int=7)
GROUP = 64
# As many rows as there are lanes, and what people and breakers did to them, processes, releases, tenants, endpoints.
SMALL = {"lanes", "lane_history", "workers", "retention_marks", "schema_migrations", "tenants", "webhook_endpoints"}
BUFFERS = 100 * GROUP
# An index that is walked from end to end reads few pages, where neighbours share them, and all the rows.
ROWS = 20 * GROUP

FILL = """
INSERT INTO notifyqueue.tenants (id, recipient_limit, recipient_window, accept_rate, accept_burst)
SELECT :prefix || n, 3, '1 h', 10, 10
FROM generate_series(1, :count / 20) AS n;

INSERT INTO notifyqueue.notifications (
  tenant_id, idempotency_key, fingerprint, channel, address, subscriber, pseudonym, reference, priority, max_attempts,
  due_at, next_attempt_at, expire_at, status, waiting, limit_key, finished_at, failure_reason, attempt_count,
  claim_token, worker_id, lease_expires_at
)
SELECT 'default', :prefix || n, '', 'EMAIL', 'a' || n % 1000, 's' || n % 1000, 'p' || n % 1000, 'r' || n, 1 + n % 3, 5,
  now(), now(),
  CASE WHEN n % 100 = 1 THEN now() + interval '1 us' END, said.status, n % 10 = 2, 'EMAIL a' || n % 1000,
  CASE WHEN said.status NOT IN ('PENDING', 'PROCESSING') THEN now() - interval '60 days' END,
  CASE said.status WHEN 'DEAD_LETTERED' THEN 'WORKER_LOST' WHEN 'FAILED' THEN 'MESSAGE_REJECTED' END,
  (said.status = 'PROCESSING')::int, held.token, held.token, CASE WHEN held.token IS NOT NULL THEN now() END
FROM generate_series(1, :count) AS n
CROSS JOIN LATERAL (
  SELECT CASE
    WHEN n % 10 <= 4 THEN 'PENDING' WHEN n % 100 = 95 THEN 'PROCESSING' WHEN n % 100 = 96 THEN 'DEAD_LETTERED'
    WHEN n % 100 = 97 THEN 'FAILED' ELSE 'SENT'
  END AS status
) AS said
CROSS JOIN LATERAL (
  SELECT CASE WHEN said.status = 'PROCESSING' THEN '00000000-0000-0000-0000-000000000007'::uuid END AS token
) AS held;

INSERT INTO notifyqueue.notification_contents
SELECT n.id, '{}'
FROM notifyqueue.notifications AS n
WHERE starts_with(n.idempotency_key, :prefix)
LIMIT :count;

INSERT INTO notifyqueue.templates (tenant_id, name, channel, newest, erased_at)
SELECT CASE n % 20 WHEN 0 THEN 'default' ELSE :prefix || 1 + n % (:count / 20) END, :prefix || n, 'EMAIL', 2,
  CASE n % 10 WHEN 7 THEN now() END
FROM generate_series(1, :count) AS n;

INSERT INTO notifyqueue.template_versions (template_id, version, default_locale, variants)
SELECT t.id, said.version, 'en', '{"en": {}}'
FROM notifyqueue.templates AS t, generate_series(1, 2) AS said (version)
WHERE starts_with(t.name, :prefix) AND t.erased_at IS NULL
LIMIT 2 * :count;

INSERT INTO notifyqueue.notification_history (notification_id, kind)
SELECT n.id, 'WAITED'
FROM notifyqueue.notifications AS n
WHERE starts_with(n.idempotency_key, :prefix)
LIMIT :count;

INSERT INTO notifyqueue.suppressions (tenant_id, channel, address, source)
SELECT 'default', 'EMAIL', :prefix || n, 'BOUNCED'
FROM generate_series(1, :count) AS n;

INSERT INTO notifyqueue.suppressions (tenant_id, channel, subscriber, source)
SELECT 'default', '', :prefix || n, 'OPTED_OUT'
FROM generate_series(1, :count / 2) AS n;

INSERT INTO notifyqueue.subscribers (tenant_id, name, email, phone, push)
SELECT 'default', :prefix || n, :prefix || n, '+' || n, :prefix || n
FROM generate_series(1, :count) AS n;

INSERT INTO notifyqueue.recipient_reservations (notification_id, tenant_id, limit_key, started_at, leaves_at)
SELECT n.id, 'default', n.limit_key, now() - interval '2 h', now() - interval '1 h'
FROM notifyqueue.notifications AS n
WHERE starts_with(n.idempotency_key, :prefix)
LIMIT :count;

INSERT INTO notifyqueue.recipient_gates (tenant_id, limit_key, channel, opens_at)
SELECT 'default', :prefix || n, 'EMAIL', now() + n * interval '1 s'
FROM generate_series(-20, :count) AS n;

INSERT INTO notifyqueue.accept_buckets (tenant_id)
SELECT t.id
FROM notifyqueue.tenants AS t
WHERE starts_with(t.id, :prefix)
LIMIT :count;

INSERT INTO notifyqueue.api_keys (id, tenant_id, role, secret_hash)
SELECT lpad(to_hex(hashtext(:prefix || n)::bigint & 281474976710655), 12, '0'), 'default', 'SENDER', sha256('x')
FROM generate_series(1, :count) AS n
ON CONFLICT DO NOTHING;

INSERT INTO notifyqueue.webhook_endpoints (tenant_id, url, sealed_secret)
SELECT t.id, 'http://127.0.0.1:9/', ''
FROM notifyqueue.tenants AS t
WHERE starts_with(t.id, :prefix)
LIMIT :count;

INSERT INTO notifyqueue.webhook_events (
  tenant_id, notification_id, status, redrive_count, attempt_count, channel, labels, occurred_at, fanned_out_at
)
SELECT 'default', n.id, n.status, 0, 1, 'EMAIL', '{}', n.finished_at, CASE WHEN n.status = 'SENT' THEN now() END
FROM notifyqueue.notifications AS n
WHERE starts_with(n.idempotency_key, :prefix) AND n.finished_at IS NOT NULL LIMIT :count;

INSERT INTO notifyqueue.webhook_deliveries (event_id, endpoint_id, tenant_id, attempt_count, claim_token, delivered_at)
SELECT e.id, busy.id, 'default', 2,
  CASE WHEN spread.number IN (10, 20, 30, 40, 50) THEN '00000000-0000-0000-0000-000000000007'::uuid END,
  CASE WHEN spread.number % 10 > 0 THEN now() END
FROM (SELECT v.id, row_number() OVER () AS number FROM notifyqueue.webhook_events AS v LIMIT :count) AS spread
JOIN notifyqueue.webhook_events AS e ON e.id = spread.id
CROSS JOIN (SELECT o.id FROM notifyqueue.webhook_endpoints AS o ORDER BY o.id LIMIT 1) AS busy
ON CONFLICT DO NOTHING;

INSERT INTO notifyqueue.webhook_attempts (delivery_id, attempt, started_at, duration, http_status)
SELECT d.id, 1, now(), '1 s', 200
FROM notifyqueue.webhook_deliveries AS d
LIMIT :count
ON CONFLICT DO NOTHING;

INSERT INTO notifyqueue.lane_history (channel, kind)
SELECT 'SMS', 'LANE_RESUMED'
FROM generate_series(1, :count) AS n;

INSERT INTO notifyqueue.status_totals (tenant_id, channel, status, count)
SELECT :prefix || n, 'SMS', 'SENT', 1
FROM generate_series(1, :count) AS n;

INSERT INTO notifyqueue.status_deltas (tenant_id, channel, status, count)
SELECT :prefix || n, 'SMS', 'SENT', 1
FROM generate_series(1, :count) AS n;
"""
TIMED_OUT = Plan({"Node Type": "Timeout", "Shared Hit Blocks": 2**63, "Shared Read Blocks": 0})
YOUNG, GROWN = 20, 20_000


@dataclass(frozen=True)
class Known:
    """What there is to ask about."""

    held: Sequence[UUID] = (LOWEST,)
    pending: Sequence[UUID] = (LOWEST,)
    dead: Sequence[UUID] = (LOWEST,)
    events: Sequence[UUID] = (LOWEST,)
    deliveries: Sequence[UUID] = (LOWEST,)
    templates: Sequence[UUID] = (LOWEST,)
    endpoint: UUID = LOWEST


Args = Callable[[Known], Sequence[object]]


def fence(known: Known) -> list[object]:
    return [known.held, [TOKEN] * len(known.held)]


def fenced(*more: object) -> Args:
    """For each of the held ones, these."""
    return lambda known: [*fence(known), *([one] * len(known.held) for one in more)]


def always(*args: object) -> Args:
    return lambda _: args


RECIPIENT = ([T], ["EMAIL a2"])
ANY = (None,) * 6  # channel, address, reference, since, before, subscriber

SCHEDULER: Mapping[str, Args] = {
    "cancel_notification": lambda known: [T, known.pending[0], "", ""],
    "cancel_notifications": lambda known: [T, known.pending, "", ""],
    "charge_buckets": always([T], [LATER], [1]),
    "count_in_flight": always(T, "EMAIL", "a2", None, "p2", "", "OPTED_OUT"),
    "count_pending": always([T], [GROUP]),
    "count_templates": always(T),
    "delete_suppression": always(T, "EMAIL", "grown7", "grown8", "p7", "", "BOUNCED"),
    "delete_suppressions": always(T, "BOUNCED", EPOCH, HIGHEST, LOWEST, GROUP, True),
    "delete_subscriber": always(LOWEST),
    "erase_notifications": always(T, "s2", LOWEST, GROUP, "", ""),
    "erase_suppressions": always(T, ["EMAIL"], ["grown7"], ["p7"]),
    "set_pseudonyms": always(T, ["EMAIL"], ["grown7"], ["p7"]),
    "erase_template": always(T, "grown20"),
    "find_dead": always(T, HIGHEST, LOWEST, *ANY),
    "find_id": always(T, "grown7"),
    "find_pending": always(T, HIGHEST, LOWEST, *ANY),
    "find_writers": always(),
    "hold_subscriber": always(T, "grown7"),
    "insert_notifications": always(
        *([one] for one in (T, "new", b"", "EMAIL", "a2", 2, LATER, None, None, None, False, "", None, "{}", "{}")),
        *(["grown20"], [2], ["grown7"], [LOWEST], ["p7"], 5, [None]),
    ),
    "list_notifications": always(T, HIGHEST, LOWEST, 50, None, *ANY),
    "list_suppressions": always(T, HIGHEST, 50, *[None] * 6),
    "list_subscribers": always(T, HIGHEST, 50),
    "list_templates": always(T, HIGHEST, 50),
    "lock_buckets": always([T]),
    "lock_templates": always(T),
    "look_up_keys": always(
        *([T] * 3, ["grown1", "grown2", "x"], ["EMAIL"] * 3, ["grown1", "a2", "b"], [""] * 3),
        *(["grown20", "grown20", None], [1, None, None], ["grown1", "s2", None], ["p1", "p2", "p3"]),
    ),
    "make_buckets": always([T]),
    "pause_lane": always("SMS", "key:1", "why"),
    "put_suppression": always(T, "EMAIL", "grown7", None, "p7", "", "BOUNCED", "key:1"),
    "put_subscriber": always(T, "grown7", "a@example.com", None, None, "de", None),
    "read_changed": lambda known: [known.pending, [1] * len(known.pending)],
    "read_gauges": always(1_000),
    "read_history": lambda known: [known.pending[0]],
    "read_lane_stats": always(T),
    "read_lanes": always(),
    "read_notifications": lambda known: [[T] * len(known.pending), known.pending],
    "read_region": always(T),
    "read_schedule": lambda known: [T, known.pending[0]],
    "read_subscriber": always(T, "grown7"),
    "read_template": always(T, "grown20", None),
    "read_totals": always("grown7"),
    "read_variants": lambda known: [known.templates, [2] * len(known.templates)],
    "read_webhook_stats": always(T),
    "read_workers": always(),
    "redrive_notifications": lambda known: [
        *(T, known.dead, [None] * len(known.dead), [SECOND] * len(known.dead), 5, "", "", None)
    ],
    "reschedule_notification": lambda known: [T, known.pending[0], LATER, 3, "", ""],
    "resume_lane": always("SMS", "key:1", "why"),
    "write_template": always(T, "grown20", "EMAIL", "en", '{"en": {}}', ""),
    "find_api_keys": always(["0123456789ab", "x"]),
    "notify_topics": always(["nobody"]),
    "read_schema_version": always(),
}
WORKER: Mapping[str, Args] = {
    "beat": always(TOKEN, "RUNNING", ["EMAIL"], [1], [0], [0], [0]),
    "call_back": lambda known: [known.pending],
    "claim_due": always("EMAIL", [3, 2, 1], timedelta(), uuid4(), uuid4(), MINUTE, True),
    "claim_probe": always("EMAIL", uuid4(), uuid4(), MINUTE),
    "close_breaker": always("SMS", 0, TOKEN),
    "delay_probe": always("SMS", 0, TOKEN, MINUTE),
    "end_unsent": fenced("ADDRESS_REJECTED", "x", "ATTEMPT_FAILED", False, "BOUNCED", None),
    "erase_contents": always(LOWEST, MONTH, True, 4 * GROUP),
    "expire_overdue": always(GROUP),
    "find_held": fence,
    "find_recorded": fenced(1, None),
    "find_removable": always(LOWEST, MONTH, GROUP),
    "find_standing": fence,
    "forget_worker": always(TOKEN),
    "grant_slots": always(*RECIPIENT, [3], [True]),
    "hold_claims": fence,
    "hold_lane": always("SMS", SECOND),
    "lock_expired_claims": always(timedelta(), None),
    "look_at_gate": always(T, "grown7"),
    "mark_sent": fenced("m", None),
    "mend_gates": always(T, "EMAIL a99"),
    "merge_totals": always(),
    "move_mark": always("CONTENTS", LOWEST, False, None),
    "open_breaker": always("SMS", 0, "503", SECOND, TOKEN),
    "read_next_due": always("EMAIL", True),
    "read_next_gate": always("EMAIL"),
    "read_windows": always(*RECIPIENT),
    "release_token": always(uuid4(), TOKEN),
    "remove_dead_workers": always(MONTH),
    "remove_gates": always(*RECIPIENT),
    "remove_lane_history": always(MONTH),
    "remove_reservations": always(SECOND),
    "renew_leases": lambda known: [*fence(known), MINUTE],
    "retry_later": fenced(SECOND, "x", "ATTEMPT_FAILED", False, False, False),
    "return_probe": always("SMS", 0, TOKEN),
    "return_slot": lambda known: [known.held[0], TOKEN],
    "set_gates": always(*RECIPIENT, ["EMAIL"], [SECOND], [3], [MINUTE]),
    "start_admitted": lambda known: [
        *(known.held, *([one] * len(known.held) for one in (T, "EMAIL a2", MINUTE)), MINUTE)
    ],
    "start_attempts": lambda known: [*fence(known), MINUTE],
    "take_gates": always("EMAIL", GROUP),
    "take_mark": always("CONTENTS"),
    "take_probe": always("SMS", 0, TOKEN, SECOND),
    "try_recipients": always(*RECIPIENT),
    "wait_at_gates": lambda known: [known.held, ["EMAIL a2"] * len(known.held)],
    "remove_deliveries": lambda known: [known.events],
    "remove_events": lambda known: [known.events],
    "remove_notifications": lambda known: [known.dead],
}
DISPATCHER: Mapping[str, Args] = {
    "claim_deliveries": lambda known: [[known.endpoint], 10, GROUP, uuid4(), MINUTE, 10],
    "delete_endpoint": lambda known: [T, known.endpoint],
    "fan_out_events": always(GROUP),
    "find_configured_endpoint": always(T),
    "give_up_deleted": always(GROUP),
    "insert_endpoint": always(TOKEN, T, "http://127.0.0.1:9/", [], "", b"", False, 100),
    "list_endpoints": always(T, HIGHEST, 50),
    "new_endpoint_id": always(),
    "read_next_due": always(10, SECOND),
    "record_results": lambda known: [
        known.deliveries,
        *(
            [one] * len(known.deliveries)
            for one in (known.endpoint, TOKEN, LATER, SECOND, 500, "STATUS", None, SECOND, None)
        ),
    ],
    "release_claim": always(uuid4()),
    "take_endpoints": always(10, 100),
    "update_configured_endpoint": lambda known: [known.endpoint, "http://127.0.0.1:9/", b""],
}
ARGS = {"scheduler": SCHEDULER, "worker": WORKER, "dispatcher": DISPATCHER}
REMOVAL = CHECKOUT / "shared/removal/sql"
HOMES = {CHECKOUT / "services" / service / "sql": service for service in SERVICES}
HOMES |= {CHECKOUT / "shared/sql": "scheduler", REMOVAL: "worker", CHECKOUT / "shared/mending/sql": "worker"}
# An owner's command: on a connection of its own, once.
OWNERS = {"find_dead", "hold_mark"}
DOCTORS = CHECKOUT / "shared/doctor/sql"

LED = (
    *(Filter(address="a2", channel="EMAIL"), Filter(reference="r5")),
    *(Filter(status="FAILED"), Filter(subscriber="s2")),
)

# What reads more, and why: it counts up to 10,000 of each class; it takes 5,000 rows; it looks at a tenth of all.
MORE = {"read_lane_stats": 60_000, "read_webhook_stats": 30_000, "merge_totals": 40_000, "remove_reservations": 60_000}
MORE |= {"find_dead": 20_000, "find_pending": 20_000, "claim_due 512": 40_000, "mend_gates": 20_000}
# These count up to 10,000, or take 5,000; of what was not merged yet, all is merged, and read.
COUNTED = ["find_pending", "read_gauges", "read_lane_stats", "read_webhook_stats", "delete_suppressions"]
MORE_ROWS = dict.fromkeys(COUNTED, 10_100)
MORE_ROWS |= {"remove_reservations": 5_000, "merge_totals": 20_100, "read_totals": 20_100}
# What was not merged yet, or not delivered, is read and sorted while it is little. Merging has no parameter, and is
# planned once for all.
MORE_SCANS = {
    "merge_totals": {"status_deltas"},
    "read_totals": {"status_deltas"},
    "read_webhook_stats": {"webhook_deliveries"},
    "read_gauges": {"webhook_deliveries", "pg_database"},
}


def texts(service: str) -> Iterator[tuple[str, str, Args]]:
    """Each statement, as it is sent: name, text, arguments."""
    files = {file.stem: file for folder, whose in HOMES.items() if whose == service for file in folder.glob("*.sql")}
    for name, args in ARGS[service].items():
        yield name, files[name].read_text("utf-8"), args
    if service == "worker":
        for limit in (1, 8, 512):
            yield f"claim_due {limit}", CLAIM[limit], WORKER["claim_due"]
    if service == "scheduler":
        for filter_ in LED:
            lead = next(name for name in ("address", "reference", "status", "subscriber") if getattr(filter_, name))
            said = (filter_.status, filter_.channel, filter_.address, filter_.reference, None, None, filter_.subscriber)
            text = _led(sql["list_notifications"], filter_, address="$6, $7", reference="$8", subscriber="$11")
            yield f"list_notifications by {lead}", text, always(T, HIGHEST, LOWEST, 50, *said)
        for channel in ("EMAIL", "SMS", "PUSH"):
            yield f"list_subscribers by {channel}", having(At(channel, "")), always(T, HIGHEST, 50, "+7")
        for banned in (BanFilter("EMAIL", "grown7"), BanFilter(source="OPERATOR"), BanFilter(subscriber="grown8")):
            asked = (banned.channel, banned.address, None, banned.category, banned.source, banned.subscriber)
            text = led(sql["list_suppressions"], banned)
            yield f"list_suppressions by {asked}", text, always(T, HIGHEST, 50, *asked)


def test_every_statement_is_tried_here() -> None:
    files = {*CHECKOUT.glob("services/**/*.sql"), *CHECKOUT.glob("shared/**/sql/*.sql")} - {*DOCTORS.iterdir()}
    tried = {(HOMES[file.parent], file.stem) for file in files if file.stem not in OWNERS or file.parent != REMOVAL}
    assert tried == {(service, name) for service, args in ARGS.items() for name in args}


@dataclass(frozen=True)
class Place:
    """A kind of database."""

    server: str
    create: str = ""

    def __str__(self) -> str:
        return f"{self.server} {'icu' if self.create else ''}".strip()


PLACES = [
    Place("postgres"),
    Place("postgres_15"),
    Place("postgres_15", "LOCALE_PROVIDER icu ICU_LOCALE 'und' TEMPLATE template0"),
]


@pytest.fixture(scope="module", params=PLACES, ids=str)
def plans(request: pytest.FixtureRequest) -> Iterator[Mapping[tuple[str, str], Plan]]:
    """By service and statement."""
    server: Postgres = request.getfixturevalue(request.param.server)
    yield asyncio.run(grow(server, request.param.create))
    asyncio.run(run(server.url, "DROP DATABASE grown WITH (FORCE)"))


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def run(url: str, *statements: str) -> None:
    async with connected(url) as owner:
        for statement in statements:
            await owner.execute(statement)


async def grow(server: Postgres, create: str) -> Mapping[tuple[str, str], Plan]:
    await run(server.url, "DROP DATABASE IF EXISTS grown WITH (FORCE)", f"CREATE DATABASE grown {create}")
    url = server.url_of("grown")
    await migrate(url)
    await create_roles(url, LOGINS, dict.fromkeys(SERVICES, LOGINS))
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(connected(url))
        await owner.execute(NO_AUTOVACUUM)
        await fill(owner, YOUNG, "young")
        await owner.execute("ANALYZE")
        logins = {service: await stack.enter_async_context(connected(login(url, service))) for service in SERVICES}
        for service, connection in logins.items():
            await prepare(connection, service)
        await fill(owner, GROWN, "grown")
        known = await look(owner)
        found: dict[tuple[str, str], Plan] = {}
        for service, connection in logins.items():
            for number, (name, _, args) in enumerate(texts(service)):
                async with undone(connection):
                    try:
                        found[service, name] = await explain_prepared(connection, f"s{number}", args(known))
                    except asyncpg.QueryCanceledError:
                        found[service, name] = TIMED_OUT
    return found


@asynccontextmanager
async def undone(connection: Connection) -> AsyncIterator[None]:
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield
    finally:
        await transaction.rollback()


async def fill(owner: Connection, count: int, prefix: str) -> None:
    await owner.execute(FILL.replace(":count", str(count)).replace(":prefix", f"'{prefix}'"))


async def prepare(connection: Connection, service: str) -> None:
    if await connection.fetchval("SHOW plan_cache_mode") == "auto":
        await connection.execute("SET plan_cache_mode = force_generic_plan")  # what it may come to
    for number, (_, text, args) in enumerate(texts(service)):
        await connection.execute(f"PREPARE s{number} AS {text}")
        async with undone(connection):
            await execute_prepared(connection, f"s{number}", args(Known()))


async def look(owner: Connection) -> Known:
    async def ids(text: str) -> list[UUID]:
        return sorted(row["id"] for row in await owner.fetch(f"{text} LIMIT {GROUP}"))

    grown = "SELECT id FROM notifyqueue.notifications WHERE starts_with(idempotency_key, 'grown') AND"
    (endpoint,) = await ids("SELECT endpoint_id AS id FROM notifyqueue.webhook_deliveries GROUP BY endpoint_id")
    return Known(
        held=await ids(f"{grown} status = 'PROCESSING'"),
        pending=await ids(f"{grown} status = 'PENDING' AND NOT waiting AND expire_at IS NULL"),
        dead=await ids(f"{grown} status = 'DEAD_LETTERED'"),
        events=await ids("SELECT id FROM notifyqueue.webhook_events WHERE fanned_out_at IS NOT NULL ORDER BY id DESC"),
        deliveries=await ids("SELECT id FROM notifyqueue.webhook_deliveries WHERE claim_token IS NOT NULL"),
        templates=await ids("SELECT id FROM notifyqueue.templates WHERE erased_at IS NULL ORDER BY id DESC"),
        endpoint=endpoint,
    )


@pytest.mark.parametrize("service", SERVICES)
def test_what_was_planned_for_a_young_table_reads_no_grown_one(
    plans: Mapping[tuple[str, str], Plan], service: str
) -> None:
    faults = {}
    for (whose, name), plan in plans.items():
        if whose != service:
            continue
        scanned = {
            node["Relation Name"]
            for node in plan.nodes("Seq Scan")
            if node["Actual Loops"] and node["Relation Name"] not in SMALL | MORE_SCANS.get(name, set())
        }
        rows = plan.rows(but=SMALL)
        if scanned or plan.buffers > MORE.get(name, BUFFERS) or rows > MORE_ROWS.get(name, ROWS):
            faults[name] = (sorted(scanned), plan.buffers, rows)
    assert faults == {}
