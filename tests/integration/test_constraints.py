"""What the database itself refuses, and the events that it writes by itself, whatever statement comes."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from sandbox.postgres import Postgres
from shared.lifecycle import TERMINAL, Status
from shared.migrations import migrate

ID, NOW = "gen_random_uuid()", "now()"
TEMPLATE = UUID(int=3)

# A row of each table that is fine: column -> SQL.
ROWS: Mapping[str, Mapping[str, str]] = {
    "tenants": {"id": "'acme'"},
    "notifications": {
        "tenant_id": "'default'",
        "idempotency_key": "'key'",
        "fingerprint": "''",
        "channel": "'EMAIL'",
        "address": "'someone@example.com'",
        "priority": "2",
        "due_at": NOW,
        "next_attempt_at": NOW,
        "max_attempts": "5",
    },
    "notification_contents": {"notification_id": f"'{UUID(int=1)}'", "content": "'{}'"},
    "notification_history": {"notification_id": f"'{UUID(int=1)}'", "kind": "'WAITED'"},
    "webhook_endpoints": {"tenant_id": "'default'", "url": "'https://example.com/'", "sealed_secret": "''"},
    "webhook_events": {
        "tenant_id": "'default'",
        "notification_id": f"'{UUID(int=1)}'",
        "status": "'SENT'",
        "redrive_count": "0",
        "attempt_count": "1",
        "channel": "'EMAIL'",
        "labels": "'{}'",
        "occurred_at": NOW,
    },
    "webhook_deliveries": {
        "event_id": f"'{UUID(int=1)}'",
        "endpoint_id": f"'{UUID(int=2)}'",
        "tenant_id": "'default'",
    },
    "webhook_attempts": {
        "delivery_id": f"'{UUID(int=1)}'",
        "attempt": "1",
        "started_at": NOW,
        "duration": "'1 s'",
        "http_status": "200",
    },
    "api_keys": {"id": "'0123456789ab'", "tenant_id": "'default'", "role": "'SENDER'", "secret_hash": "sha256('x')"},
    "lanes": {"channel": "'SMS'"},
    "lane_history": {"channel": "'SMS'", "kind": "'LANE_RESUMED'"},
    "workers": {
        "id": ID,
        "phase": "'RUNNING'",
        "channels": "'{SMS}'",
        "concurrency": "'{1}'",
        "in_flight": "'{0}'",
        "sent": "'{0}'",
        "unsent": "'{0}'",
    },
    "retention_marks": {"sweep": "'CONTENTS'"},
    "status_deltas": {"tenant_id": "'default'", "channel": "'SMS'", "status": "'SENT'", "count": "1"},
    "status_totals": {"tenant_id": "'default'", "channel": "'SMS'", "status": "'SENT'", "count": "1"},
    "suppressions": {
        "tenant_id": "'default'",
        "channel": "'EMAIL'",
        "address": "'someone@example.com'",
        "source": "'OPTED_OUT'",
    },
    "accept_buckets": {"tenant_id": "'default'"},
    "templates": {"tenant_id": "'default'", "name": "'shipped'", "channel": "'SMS'", "newest": "1"},
    "template_versions": {
        "template_id": f"'{TEMPLATE}'",
        "version": "1",
        "default_locale": "'en'",
        "variants": """'{"en": {"text": "a"}}'""",
    },
    "recipient_reservations": {
        "notification_id": f"'{UUID(int=1)}'",
        "tenant_id": "'default'",
        "limit_key": "'k'",
        "started_at": NOW,
        "leaves_at": NOW,
    },
    "recipient_gates": {"tenant_id": "'default'", "limit_key": "'k'", "channel": "'SMS'", "opens_at": NOW},
}

# What a notification has beside its status.
CLAIM = {"claim_token": ID, "worker_id": ID, "lease_expires_at": NOW}
ENDED = {"finished_at": NOW}
STATUSES: Mapping[str, Mapping[str, str]] = {
    "PENDING": {},
    "PROCESSING": CLAIM,
    "SENT": ENDED,
    "FAILED": ENDED | {"failure_reason": "'MESSAGE_REJECTED'"},
    "DEAD_LETTERED": ENDED | {"failure_reason": "'ATTEMPTS_EXHAUSTED'"},
    "CANCELLED": ENDED,
    "EXPIRED": ENDED,
    "SUPPRESSED": ENDED | {"failure_reason": "'OPTED_OUT'"},
}


@dataclass(frozen=True)
class Case:
    """A row that its constraint refuses."""

    constraint: str
    table: str
    columns: dict[str, str] = field(default_factory=dict)
    times: int = 1

    def __str__(self) -> str:
        return f"{self.constraint}-{'-'.join(self.columns)}"


def case(constraint: str, table: str, times: int = 1, **columns: str) -> Case:
    return Case(constraint, table, columns, times)


def notification(constraint: str, status: str = "PENDING", **columns: str) -> Case:
    return Case(constraint, "notifications", {"status": f"'{status}'", **STATUSES.get(status, ENDED), **columns})


def text(length: int) -> str:
    return f"repeat('x', {length})"


CASES = [
    case("tenants_id_check", "tenants", id="'Acme'"),
    case("tenants_id_check", "tenants", id="''"),
    case("tenants_id_check", "tenants", id=text(64)),
    case("tenants_id_check", "tenants", id="E'acme\\n'"),
    case("tenants_horizon_check", "tenants", horizon="'0'"),
    case("tenants_past_grace_check", "tenants", past_grace="'-1 s'"),
    notification("notifications_tenant_id_fkey", tenant_id="'nobody'"),
    case("notifications_idempotency_key", "notifications", times=2),
    notification("notifications_idempotency_key_check", idempotency_key="''"),
    notification("notifications_idempotency_key_check", idempotency_key=text(256)),
    notification("notifications_channel_check", channel="'FAX'"),
    notification("notifications_address_check", address="''"),
    notification("notifications_priority_check", priority="0"),
    notification("notifications_priority_check", priority="4"),
    notification("notifications_reference_check", reference="''"),
    notification("notifications_labels_check", labels="'[]'"),
    notification("notifications_status_check", "LOST"),
    notification("notifications_max_attempts_check", max_attempts="0"),
    notification("notifications_max_attempts_check", max_attempts="102"),
    notification("notifications_expiries_check", expiries="-1"),
    notification("notifications_provider_code_check", provider_code="'550 no such user'"),
    notification("notifications_provider_code_check", provider_code="''"),
    notification("notifications_provider_code_check", provider_code=text(65)),
    notification("notifications_provider_code_check", provider_code="E'550\\n'"),
    notification("notifications_provider_message_id_check", provider_message_id="''"),
    notification("notifications_provider_message_id_check", provider_message_id=text(256)),
    notification("attempts_within_cap", attempt_count="-1"),
    notification("attempts_within_cap", "SENT", attempt_count="6"),
    notification("pending_has_an_attempt_left", attempt_count="5"),
    notification("claim_exactly_when_processing", "PROCESSING", claim_token="NULL"),
    notification("claim_exactly_when_processing", "PROCESSING", worker_id="NULL"),
    notification("claim_exactly_when_processing", "PROCESSING", lease_expires_at="NULL"),
    notification("claim_exactly_when_processing", claim_token=ID),
    notification("claim_exactly_when_processing", worker_id=ID),
    notification("claim_exactly_when_processing", "SENT", lease_expires_at=NOW),
    notification("waiting_only_while_pending", "PROCESSING", waiting="true", limit_key="'k'"),
    notification("waiting_only_while_pending", "CANCELLED", waiting="true", limit_key="'k'"),
    notification("finished_exactly_when_terminal", finished_at=NOW),
    notification("finished_exactly_when_terminal", "PROCESSING", finished_at=NOW),
    *(notification("finished_exactly_when_terminal", status, finished_at="NULL") for status in sorted(TERMINAL)),
    notification("failure_has_its_reason", failure_reason="'OPTED_OUT'"),
    notification("failure_has_its_reason", "SENT", failure_reason="'OUTCOME_UNKNOWN'"),
    notification("failure_has_its_reason", "FAILED", failure_reason="NULL"),
    notification("failure_has_its_reason", "FAILED", failure_reason="'ATTEMPTS_EXHAUSTED'"),
    notification("failure_has_its_reason", "FAILED", failure_reason="'BAD_LUCK'"),
    notification("failure_has_its_reason", "DEAD_LETTERED", failure_reason="NULL"),
    notification("failure_has_its_reason", "DEAD_LETTERED", failure_reason="'MESSAGE_REJECTED'"),
    notification("failure_has_its_reason", "SUPPRESSED", failure_reason="NULL"),
    notification("failure_has_its_reason", "SUPPRESSED", failure_reason="'WORKER_LOST'"),
    notification("redrives_have_their_time", redrive_count="1"),
    notification("redrives_have_their_time", last_redriven_at=NOW),
    notification("redrives_have_their_time", redrive_count="-1", last_redriven_at=NOW),
    notification("expires_after_due", expire_at=NOW),
    case("notification_contents_content_check", "notification_contents", content="'[]'"),
    case("notification_history_kind_check", "notification_history", kind="'SENT'"),
    case("notification_history_attempt_check", "notification_history", attempt="-1"),
    case("notification_history_note_check", "notification_history", note=text(256)),
    case("notification_history_provider_code_check", "notification_history", provider_code="'no such user'"),
    case("attempts_have_their_claim", "notification_history", kind="'ATTEMPT_FAILED'", worker_id=ID),
    case("attempts_have_their_claim", "notification_history", kind="'ATTEMPT_UNKNOWN'", claim_token=ID),
    case("one_outcome_per_claim", "notification_history", times=2, claim_token=f"'{UUID(int=3)}'"),
    case("webhook_endpoints_tenant_id_fkey", "webhook_endpoints", tenant_id="'nobody'"),
    case("webhook_endpoints_url_check", "webhook_endpoints", url="''"),
    case("webhook_endpoints_url_check", "webhook_endpoints", url=text(2049)),
    case("webhook_endpoints_description_check", "webhook_endpoints", description=text(256)),
    case("webhook_endpoints_disabled_reason_check", "webhook_endpoints", enabled="false", disabled_reason="'DULL'"),
    case("disabled_has_its_reason", "webhook_endpoints", enabled="false"),
    case("disabled_has_its_reason", "webhook_endpoints", disabled_reason="'GONE'"),
    case("deleted_is_disabled", "webhook_endpoints", deleted_at=NOW),
    case("one_configured_endpoint", "webhook_endpoints", times=2, configured="true"),
    case("webhook_events_status_check", "webhook_events", status="'PENDING'"),
    case("one_event_per_end", "webhook_events", times=2),
    case("fan_out_writes_the_body", "webhook_events", body="''"),
    case("webhook_deliveries_attempt_count_check", "webhook_deliveries", attempt_count="-1"),
    case("webhook_deliveries_give_up_reason_check", "webhook_deliveries", given_up_at=NOW, give_up_reason="'TIRED'"),
    case("one_delivery_per_endpoint", "webhook_deliveries", times=2),
    case("one_end", "webhook_deliveries", delivered_at=NOW, given_up_at=NOW, give_up_reason="'GONE'"),
    case("an_end_holds_no_claim", "webhook_deliveries", delivered_at=NOW, claim_token=ID),
    case("giving_up_has_its_reason", "webhook_deliveries", given_up_at=NOW),
    case("giving_up_has_its_reason", "webhook_deliveries", give_up_reason="'GONE'"),
    case("tenants_region_check", "tenants", region="'gb'"),
    case("tenants_region_check", "tenants", region="'GBR'"),
    case("tenants_recipient_limit_check", "tenants", recipient_limit="0", recipient_window="'1 h'"),
    case("tenants_recipient_limit_check", "tenants", recipient_limit="1001", recipient_window="'1 h'"),
    case("tenants_recipient_window_check", "tenants", recipient_limit="1", recipient_window="'0'"),
    case("tenants_recipient_window_check", "tenants", recipient_limit="1", recipient_window="'32 days'"),
    case("recipient_limit_is_whole", "tenants", recipient_limit="1"),
    case("tenants_pending_quota_check", "tenants", pending_quota="0"),
    case("tenants_template_quota_check", "tenants", template_quota="0"),
    case("tenants_endpoint_quota_check", "tenants", endpoint_quota="101"),
    case("accept_buckets_pending_check", "accept_buckets", pending="-1"),
    case("recipient_limit_is_whole", "tenants", recipient_window="'1 h'"),
    notification("granted_only_before_its_end", waiting="true", granted="true", limit_key="'k'"),
    *(
        notification("granted_only_before_its_end", status, granted="true", limit_key="'k'")
        for status in sorted(TERMINAL)
    ),
    notification("the_gate_is_known", waiting="true"),
    notification("the_gate_is_known", granted="true"),
    case("recipient_gates_channel_check", "recipient_gates", channel="'FAX'"),
    case("api_keys_id_check", "api_keys", id="'0123456789AB'"),
    case("api_keys_id_check", "api_keys", id="'0123'"),
    case("api_keys_tenant_id_fkey", "api_keys", tenant_id="'nobody'"),
    case("api_keys_role_check", "api_keys", role="'ROOT'"),
    case("api_keys_secret_hash_check", "api_keys", secret_hash="'x'"),
    case("api_keys_name_check", "api_keys", name=text(256)),
    case("api_keys_expires_at_check", "api_keys", expires_at="'infinity'"),
    case("platform_has_no_tenant", "api_keys", role="'PLATFORM'"),
    case("platform_has_no_tenant", "api_keys", tenant_id="NULL"),
    case("lanes_channel_check", "lanes", channel="'FAX'"),
    case("lanes_pause_reason_check", "lanes", pause_reason="''", paused_at=NOW, paused_by="'key:1'"),
    case("lanes_pause_reason_check", "lanes", pause_reason=text(256), paused_at=NOW, paused_by="'key:1'"),
    case("pause_is_whole", "lanes", paused_at=NOW),
    case("pause_is_whole", "lanes", paused_by="'key:1'", pause_reason="'why'"),
    case("lanes_cause_check", "lanes", cause="'no such user'", opened_at=NOW, probe_at=NOW, probe_delay="'1 s'"),
    case("open_breaker_is_whole", "lanes", opened_at=NOW),
    case("open_breaker_is_whole", "lanes", cause="'503'"),
    case("open_breaker_is_whole", "lanes", probe_at=NOW, probe_delay="'1 s'"),
    case("only_an_open_breaker_is_probed", "lanes", probe_token=ID),
    case("lane_history_kind_check", "lane_history", kind="'LANE_PAINTED'"),
    case("lane_history_cause_check", "lane_history", cause="'no such user'"),
    case("lane_history_note_check", "lane_history", note=text(256)),
    case("workers_phase_check", "workers", phase="'ASLEEP'"),
    case("lanes_are_whole", "workers", in_flight="'{}'"),
    case("lanes_are_whole", "workers", channels="'{SMS,PUSH}'"),
    case("suppressions_tenant_id_fkey", "suppressions", tenant_id="'nobody'"),
    case("suppressions_channel_check", "suppressions", channel="'FAX'"),
    case("suppressions_address_check", "suppressions", address="''"),
    case("an_address_has_one_spelling", "suppressions", address="'Someone@example.com'"),
    case("suppressions_category_check", "suppressions", category=text(65)),
    case("suppressions_source_check", "suppressions", source="'BAD_LUCK'"),
    case("suppressions_code_check", "suppressions", code="'no such user'"),
    case("suppressions_code_check", "suppressions", code="''"),
    case("one_suppression_per_source", "suppressions", times=2),
    case("required_categories_are_named", "tenants", required_categories="'{receipts, \"\"}'"),
    case("required_categories_are_named", "tenants", required_categories="'{receipts, NULL}'"),
    case("required_categories_are_named", "tenants", required_categories="array_fill('a'::text, '{21}')"),
    case("templates_tenant_id_fkey", "templates", tenant_id="'nobody'"),
    case("templates_name_check", "templates", name="'-shipped'"),
    case("templates_name_check", "templates", name=text(129)),
    case("templates_channel_check", "templates", channel="'FAX'"),
    case("templates_newest_check", "templates", newest="0"),
    case("one_template_per_name", "templates", times=2),
    case("template_versions_template_id_fkey", "template_versions", template_id=ID),
    case("template_versions_version_check", "template_versions", version="0"),
    case("template_versions_default_locale_check", "template_versions", default_locale="''", variants="""'{"": {}}'"""),
    case("the_default_is_there", "template_versions", default_locale="'de'"),
    case("the_default_is_there", "template_versions", variants="""'["en"]'"""),
    notification("template_has_its_version", template="'shipped'"),
    notification("template_has_its_version", template_version="1"),
    case("tenants_accept_rate_check", "tenants", accept_rate="0", accept_burst="1"),
    case("tenants_accept_burst_check", "tenants", accept_rate="1", accept_burst="0"),
    case("tenants_accept_burst_check", "tenants", accept_rate="1", accept_burst="1000001"),
    case("accept_limit_is_whole", "tenants", accept_rate="1"),
    case("accept_limit_is_whole", "tenants", accept_burst="1"),
    case("accept_buckets_tenant_id_fkey", "accept_buckets", tenant_id="'nobody'"),
    case("retention_marks_sweep_check", "retention_marks", sweep="'EVERYTHING'"),
    case("status_deltas_count_check", "status_deltas", count="0"),
    case("status_totals_count_check", "status_totals", count="0"),
    case("status_totals_channel_check", "status_totals", channel="'FAX'"),
    case("status_totals_status_check", "status_totals", status="'PENDING'"),
    case("webhook_attempts_attempt_check", "webhook_attempts", attempt="0"),
    case("webhook_attempts_error_class_check", "webhook_attempts", http_status="500", error_class="'BAD_LUCK'"),
    case("an_error_unless_2xx", "webhook_attempts", http_status="200", error_class="'STATUS'"),
    case("an_error_unless_2xx", "webhook_attempts", http_status="299", error_class="'STATUS'"),
    case("an_error_unless_2xx", "webhook_attempts", http_status="300"),
    case("an_error_unless_2xx", "webhook_attempts", http_status="NULL"),
]

# No row violates it alone: failure_has_its_reason names the same reasons by status.
IMPLIED = {"notifications_failure_reason_check"}


class Tables:
    """Writes rows as a mistaken statement would."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self.connection = connection

    async def insert(self, table: str, **columns: str) -> UUID | None:
        row = {**ROWS[table], **columns}
        id_ = "id" if table in ("notifications", "webhook_endpoints") else "NULL"
        found: UUID | None = await self.connection.fetchval(
            f"INSERT INTO notifyqueue.{table} ({', '.join(row)}) VALUES ({', '.join(row.values())}) RETURNING {id_}"
        )
        return found

    async def notification(self, key: str, status: str = "PENDING", **columns: str) -> UUID:
        kept = {"idempotency_key": f"'{key}'", "status": f"'{status}'", **STATUSES[status], **columns}
        id_ = await self.insert("notifications", **kept)
        assert id_
        return id_

    async def update(self, *ids: UUID, **columns: str) -> None:
        changes = ", ".join(f"{name} = {value}" for name, value in columns.items())
        await self.connection.execute(f"UPDATE notifyqueue.notifications SET {changes} WHERE id = ANY($1)", ids)

    async def enter(self, status: str, *ids: UUID, **columns: str) -> None:
        """Moves them there, in one statement."""
        none = dict.fromkeys([*CLAIM, *ENDED, "failure_reason"], "NULL")
        await self.update(*ids, **none | {"status": f"'{status}'", **STATUSES[status]} | columns)

    async def events(self) -> "list[asyncpg.Record]":
        return await self.connection.fetch("SELECT * FROM notifyqueue.webhook_events ORDER BY id")

    async def counts(self) -> list[tuple[str, str, str, int]]:
        """What was counted, row by row."""
        rows = await self.connection.fetch(
            "SELECT tenant_id, channel, status, count FROM notifyqueue.status_deltas"
            " ORDER BY tenant_id, channel, status"
        )
        return [(row["tenant_id"], row["channel"], row["status"], row["count"]) for row in rows]

    async def ends(self) -> list[tuple[UUID, str]]:
        return [(event["notification_id"], event["status"]) for event in await self.events()]


@pytest.fixture(scope="module")
def url(postgres: Postgres) -> Iterator[str]:
    """One database for all tests here, for each of them takes back what it wrote."""

    async def execute(statement: str) -> None:
        connection = await asyncpg.connect(postgres.url)
        await connection.execute(statement)
        await connection.close()

    asyncio.run(execute("CREATE DATABASE constraints"))
    asyncio.run(migrate(postgres.url_of("constraints")))
    yield postgres.url_of("constraints")
    asyncio.run(execute("DROP DATABASE constraints WITH (FORCE)"))


@pytest.fixture
async def tables(url: str) -> AsyncIterator[Tables]:
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("DELETE FROM notifyqueue.lanes; DELETE FROM notifyqueue.retention_marks")
    await connection.execute(
        "INSERT INTO notifyqueue.templates (id, tenant_id, name, channel, newest)"
        " VALUES ($1, 'default', 'kept', 'SMS', 1)",
        TEMPLATE,
    )
    yield Tables(connection)
    await transaction.rollback()
    await connection.close()


@pytest.mark.parametrize("table", ROWS)
async def test_a_row_that_is_fine_is_written(tables: Tables, table: str) -> None:
    await tables.insert(table)


@pytest.mark.parametrize("status", STATUSES)
async def test_every_status_can_be_written_with_what_belongs_to_it(tables: Tables, status: str) -> None:
    await tables.notification("key", status)


@pytest.mark.parametrize("refused", CASES, ids=str)
async def test_the_database_itself_refuses(tables: Tables, refused: Case) -> None:
    for _ in range(refused.times - 1):
        await tables.insert(refused.table, **refused.columns)
    with pytest.raises(asyncpg.IntegrityConstraintViolationError) as caught:
        await tables.insert(refused.table, **refused.columns)
    assert caught.value.constraint_name == refused.constraint


async def test_every_check_and_every_unique_key_is_tried_here(tables: Tables) -> None:
    rows = await tables.connection.fetch("""
        SELECT conname AS name FROM pg_constraint
        WHERE connamespace = 'notifyqueue'::regnamespace AND contype IN ('c', 'u', 'f', 'x')
        UNION
        SELECT c.relname FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
        WHERE c.relnamespace = 'notifyqueue'::regnamespace AND i.indisunique AND NOT i.indisprimary
    """)
    assert {row["name"] for row in rows} == {refused.constraint for refused in CASES} | IMPLIED


@pytest.mark.parametrize(
    ("constraint", "statuses"), [("notifications_status_check", set(Status)), ("webhook_events_status_check", TERMINAL)]
)
async def test_the_database_knows_the_statuses_of_the_code(tables: Tables, constraint: str, statuses: set[str]) -> None:
    definition = await tables.connection.fetchval(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = $1", constraint
    )
    assert set(re.findall(r"'(\w+)'", definition)) == statuses


async def test_another_tenant_may_use_the_same_key(tables: Tables) -> None:
    await tables.insert("tenants", id="'acme'")
    await tables.insert("notifications")
    await tables.insert("notifications", tenant_id="'acme'")


async def test_what_belongs_to_no_claim_may_happen_more_than_once(tables: Tables) -> None:
    for _ in range(2):
        await tables.insert("notification_history", kind="'RESCHEDULED'")


async def test_a_deleted_endpoint_makes_room_for_another_that_is_configured(tables: Tables) -> None:
    deleted = {"enabled": "false", "disabled_reason": "'DELETED'", "deleted_at": NOW}
    for columns in (deleted, deleted, {}):
        await tables.insert("webhook_endpoints", configured="true", **columns)


@pytest.mark.parametrize("target", sorted(TERMINAL))
@pytest.mark.parametrize("source", ["PENDING", "PROCESSING"])
async def test_entering_an_end_writes_one_event(tables: Tables, source: str, target: str) -> None:
    id_ = await tables.notification("key", source)
    await tables.enter(target, id_)
    assert await tables.ends() == [(id_, target)]


async def test_an_event_carries_every_fact(tables: Tables) -> None:
    id_ = await tables.notification(
        "key",
        "PROCESSING",
        channel="'PUSH'",
        reference="'order 17'",
        labels="""'{"team": "orders"}'""",
        attempt_count="3",
        redrive_count="2",
        last_redriven_at=NOW,
    )
    await tables.enter("FAILED", id_, finished_at="'2026-01-02 03:04:05.678+00'")
    (event,) = await tables.events()
    facts: dict[str, Any] = dict(event)
    assert facts.pop("id").version == 7
    assert facts.pop("occurred_at").isoformat() == "2026-01-02T03:04:05.678000+00:00"
    assert facts == {
        "tenant_id": "default",
        "notification_id": id_,
        "status": "FAILED",
        "redrive_count": 2,
        "attempt_count": 3,
        "channel": "PUSH",
        "failure_reason": "MESSAGE_REJECTED",
        "reference": "order 17",
        "labels": '{"team": "orders"}',
        "fanned_out_at": None,
        "body": None,
        "trace_context": None,
    }


async def test_a_statement_that_ends_several_writes_one_event_for_each(tables: Tables) -> None:
    ids = [await tables.notification(f"key {number}", "PROCESSING") for number in range(50)]
    await tables.enter("SENT", *ids)
    assert sorted(await tables.ends()) == [(id_, "SENT") for id_ in ids]


async def test_only_what_enters_an_end_gets_an_event(tables: Tables) -> None:
    kept = [await tables.notification(f"kept {status}", status) for status in STATUSES]
    ended = await tables.notification("ended")
    await tables.update(
        *kept,
        ended,
        status=f"CASE WHEN id = '{ended}' THEN 'CANCELLED' ELSE status END",
        finished_at=f"CASE WHEN id = '{ended}' THEN now() ELSE finished_at END",
        labels="""'{"seen": "yes"}'""",
    )
    assert await tables.ends() == [(ended, "CANCELLED")]


@pytest.mark.parametrize("status", sorted(TERMINAL))
async def test_a_change_of_what_has_ended_writes_no_event(tables: Tables, status: str) -> None:
    id_ = await tables.notification("key", status)
    await tables.update(id_, revision="revision + 1")
    assert await tables.events() == []


@pytest.mark.parametrize(
    ("source", "target"),
    [("PENDING", "PROCESSING"), ("PROCESSING", "PENDING"), ("FAILED", "PENDING"), ("DEAD_LETTERED", "PENDING")],
)
async def test_a_change_that_ends_nothing_writes_no_event(tables: Tables, source: str, target: str) -> None:
    id_ = await tables.notification("key", source)
    await tables.enter(target, id_)
    assert await tables.events() == []


async def test_an_update_of_nothing_writes_no_event(tables: Tables) -> None:
    await tables.enter("SENT")
    assert await tables.events() == []


async def test_what_ends_again_after_a_redrive_has_a_second_event(tables: Tables) -> None:
    id_ = await tables.notification("key")
    await tables.enter("DEAD_LETTERED", id_)
    await tables.enter("PENDING", id_, redrive_count="1", last_redriven_at=NOW)
    await tables.enter("DEAD_LETTERED", id_)
    assert [event["redrive_count"] for event in await tables.events()] == [0, 1]


async def test_what_was_not_redriven_cannot_end_the_same_way_twice(tables: Tables) -> None:
    id_ = await tables.notification("key")
    await tables.enter("FAILED", id_)
    await tables.enter("PENDING", id_)
    with pytest.raises(asyncpg.UniqueViolationError) as caught:
        await tables.enter("FAILED", id_)
    assert caught.value.constraint_name == "one_event_per_end"


async def test_a_change_that_is_taken_back_takes_its_event_along(tables: Tables) -> None:
    id_ = await tables.notification("key")
    inner = tables.connection.transaction()
    await inner.start()
    await tables.enter("SENT", id_)
    await inner.rollback()
    assert await tables.events() == []


async def test_a_statement_that_ends_several_leaves_one_count_for_each_way(tables: Tables) -> None:
    await tables.insert("tenants", id="'acme'")
    mails = [await tables.notification(f"key {number}", "PROCESSING") for number in range(3)]
    text = await tables.notification("text", "PROCESSING", channel="'SMS'")
    theirs = await tables.notification("theirs", "PROCESSING", tenant_id="'acme'")
    await tables.enter("SENT", *mails, text, theirs)
    assert await tables.counts() == [
        ("acme", "EMAIL", "SENT", 1),
        ("default", "EMAIL", "SENT", 3),
        ("default", "SMS", "SENT", 1),
    ]


@pytest.mark.parametrize(("source", "target"), [("PENDING", "PROCESSING"), ("PROCESSING", "PENDING")])
async def test_a_statement_that_ends_nothing_counts_nothing(tables: Tables, source: str, target: str) -> None:
    ended = await tables.notification("ended", "SENT")
    await tables.enter(target, await tables.notification("key", source))
    await tables.update(ended, revision="revision + 1")
    await tables.enter("SENT")
    assert await tables.counts() == []


async def test_what_ends_again_after_a_redrive_counts_again(tables: Tables) -> None:
    id_ = await tables.notification("key")
    await tables.enter("DEAD_LETTERED", id_)
    await tables.enter("PENDING", id_, redrive_count="1", last_redriven_at=NOW)
    await tables.enter("SENT", id_)
    assert await tables.counts() == [("default", "EMAIL", "DEAD_LETTERED", 1), ("default", "EMAIL", "SENT", 1)]


async def test_an_end_that_is_taken_back_takes_its_count_along(tables: Tables) -> None:
    id_ = await tables.notification("key")
    inner = tables.connection.transaction()
    await inner.start()
    await tables.enter("SENT", id_)
    await inner.rollback()
    assert await tables.counts() == []


async def test_every_table_is_tried_here(tables: Tables) -> None:
    rows = await tables.connection.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'notifyqueue'::regnamespace AND relkind IN ('r', 'p')"
    )
    assert {row["relname"] for row in rows} == {*ROWS, "schema_migrations"}  # the runner of migrations keeps its own


@pytest.mark.parametrize("table", ROWS)
async def test_a_second_row_under_one_key_is_refused(tables: Tables, table: str) -> None:
    await tables.connection.execute(f"TRUNCATE notifyqueue.{table} CASCADE")
    await tables.insert(table)
    with pytest.raises(asyncpg.UniqueViolationError) as caught:
        await tables.connection.execute(
            f"INSERT INTO notifyqueue.{table} OVERRIDING SYSTEM VALUE SELECT * FROM notifyqueue.{table}"
        )
    assert caught.value.constraint_name == f"{table}_pkey"


@pytest.mark.parametrize("table", ROWS)
async def test_a_row_without_what_it_needs_is_refused(tables: Tables, table: str) -> None:
    rows = await tables.connection.fetch(
        "SELECT attname FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 AND attnotnull",
        f"notifyqueue.{table}",
    )
    assert rows
    for row in rows:
        columns = {**ROWS[table], row["attname"]: "NULL"}
        inner = tables.connection.transaction()
        await inner.start()
        with pytest.raises(asyncpg.NotNullViolationError) as caught:
            await tables.connection.execute(
                f"INSERT INTO notifyqueue.{table} ({', '.join(columns)}) OVERRIDING SYSTEM VALUE"
                f" VALUES ({', '.join(columns.values())})"
            )
        await inner.rollback()
        assert caught.value.column_name == row["attname"]


# Trigger -> the table it is on.
TRIGGERS = {"write_events": "notifications", "count_ends": "webhook_events"}


async def test_every_trigger_is_tried_here(tables: Tables) -> None:
    rows = await tables.connection.fetch(
        "SELECT t.tgname, c.relname FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid"
        " WHERE c.relnamespace = 'notifyqueue'::regnamespace AND NOT t.tgisinternal AND t.tgenabled = 'O'"
    )
    assert {row["tgname"]: row["relname"] for row in rows} == TRIGGERS


@pytest.mark.parametrize("trigger", TRIGGERS)
async def test_it_is_the_trigger_that_writes(tables: Tables, trigger: str) -> None:
    """The control: without it, what the tests above find is not there."""
    await tables.connection.execute(f"ALTER TABLE notifyqueue.{TRIGGERS[trigger]} DISABLE TRIGGER {trigger}")
    await tables.enter("SENT", await tables.notification("key", "PROCESSING"))
    written = {"write_events": await tables.events(), "count_ends": await tables.counts()}
    assert written[trigger] == []
