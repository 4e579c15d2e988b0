"""What the doctor finds, each planted and found alone; and that it is silent about what is as it should be."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from shared import admin
from shared.doctor import CHECKS, Bounds, Finding, as_json, diagnose, line, repair
from shared.doctor.command import SESSION
from shared.roles import SERVICES
from shared.roles import SESSION as OF_LOGINS
from tests.databases import LOGINS
from tests.integration.conftest import StartWorker
from tests.notifications import Notifications
from tests.providers import ScriptedProvider
from tests.recipients import Connection, limit
from tests.waiting import eventually

ZERO, HOUR, DAY = timedelta(), timedelta(hours=1), timedelta(days=1)
AT_ONCE = timedelta(milliseconds=10)
FAULTLESS = Bounds(lease=AT_ONCE)  # the tests' own server has just started
ADDRESS = "someone@example.com"
OLD = "00000000-0000-7000-8000-000000000001"  # an id of 1970

Plant = Callable[[Notifications], Awaitable[None]]


async def insert_old(tables: Notifications, key: str = "old", **columns: Any) -> UUID:
    """Due and accepted an hour ago."""
    id_ = await tables.insert(key, due_in=-HOUR, **columns)
    await tables.connection.execute(
        "UPDATE notifyqueue.notifications SET created_at = now() - interval '1 hour' WHERE id = $1", id_
    )
    return id_


async def serve(tables: Notifications, phase: str = "RUNNING", since: timedelta = DAY, seen: timedelta = ZERO) -> None:
    """A worker that has served for as long, and was seen as long ago."""
    await tables.connection.execute(
        "INSERT INTO notifyqueue.workers (id, phase, started_at, heartbeat_at, channels, concurrency, in_flight, sent, "
        "unsent) VALUES ($1, $2, now() - $3::interval, now() - $4::interval, '{EMAIL}', '{1}', '{0}', '{0}', '{0}')",
        *(uuid4(), phase, since, seen),
    )


async def strand(tables: Notifications) -> None:
    await insert_old(tables)


async def strand_suspect(tables: Notifications) -> None:
    await insert_old(tables, expiries=2)


async def strand_by_draining(tables: Notifications) -> None:
    await serve(tables, "DRAINING")
    await insert_old(tables)


async def strand_by_death(tables: Notifications) -> None:
    await serve(tables, seen=timedelta(minutes=1))
    await insert_old(tables)


async def lag(tables: Notifications) -> None:
    await serve(tables)
    await insert_old(tables)


async def leave_claim(tables: Notifications) -> None:
    id_ = await tables.insert("claimed")
    await tables.connection.execute(
        "UPDATE notifyqueue.notifications SET status = 'PROCESSING', attempt_count = 1, claim_token = $2, "
        "worker_id = $2, lease_expires_at = now() - interval '1 hour' WHERE id = $1",
        *(id_, uuid4()),
    )


async def send(tables: Notifications, id_: UUID) -> None:
    await tables.connection.execute(
        "UPDATE notifyqueue.notifications SET status = 'SENT', finished_at = now() WHERE id = $1", id_
    )


async def end_unseen(tables: Notifications) -> None:
    id_ = await tables.insert("unseen")
    await switch("write_events", "notifications", "DISABLE", tables)
    await send(tables, id_)
    await switch("write_events", "notifications", "ENABLE", tables)


async def end_again_unseen(tables: Notifications) -> None:
    """As it had ended before, which was seen."""
    id_ = await tables.insert("again")
    await send(tables, id_)
    await switch("write_events", "notifications", "DISABLE", tables)
    await tables.connection.execute(
        "UPDATE notifyqueue.notifications SET redrive_count = 1, last_redriven_at = now() WHERE id = $1", id_
    )
    await switch("write_events", "notifications", "ENABLE", tables)


async def switch(trigger: str, table: str, way: str, tables: Notifications) -> None:
    await tables.connection.execute(f"ALTER TABLE notifyqueue.{table} {way} TRIGGER {trigger}")


async def switch_off(tables: Notifications) -> None:
    await switch("count_ends", "webhook_events", "DISABLE", tables)


async def drop_trigger(tables: Notifications) -> None:
    await tables.connection.execute("DROP TRIGGER write_events ON notifyqueue.notifications")


async def insert_event(tables: Notifications, *, fanned_out: bool) -> None:
    await tables.connection.execute(
        "INSERT INTO notifyqueue.webhook_events (id, tenant_id, notification_id, status, redrive_count, attempt_count, "
        "channel, labels, occurred_at, fanned_out_at) "
        "VALUES ($1, 'default', $1, 'SENT', 0, 1, 'EMAIL', '{}', now() - interval '60 d', CASE WHEN $2 THEN now() END)",
        *(OLD, fanned_out),
    )


async def leave_event(tables: Notifications) -> None:
    await insert_event(tables, fanned_out=False)


async def leave_delivery(tables: Notifications, deleted: str = "") -> None:
    await tables.connection.execute(
        "WITH e AS (INSERT INTO notifyqueue.webhook_endpoints (tenant_id, url, sealed_secret, enabled, "
        "disabled_reason, deleted_at) VALUES ('default', 'http://someone@example.com/', '', $1 = '', nullif($1, ''), "
        "CASE WHEN $1 <> '' THEN now() - interval '1 hour' END) RETURNING id) "
        "INSERT INTO notifyqueue.webhook_deliveries (event_id, endpoint_id, tenant_id, next_attempt_at) "
        "SELECT e.id, e.id, 'default', now() - interval '1 hour' FROM e",
        deleted,
    )


async def leave_delivery_of_a_deleted_endpoint(tables: Notifications) -> None:
    await leave_delivery(tables, "DELETED")


async def set_gate(tables: Notifications) -> None:
    await tables.connection.execute(
        "INSERT INTO notifyqueue.recipient_gates (tenant_id, limit_key, channel, opens_at) "
        "VALUES ('default', $1, 'EMAIL', now() - interval '1 hour')",
        f"EMAIL {ADDRESS}",
    )


async def wait(tables: Notifications) -> None:
    await tables.insert("waiting", address=ADDRESS, waiting=True)


async def wait_at_gate(tables: Notifications) -> None:
    await set_gate(tables)
    await wait(tables)


async def suspect(tables: Notifications) -> None:
    await tables.insert("suspect", expiries=2, due_in=DAY)


def lane(assignments: str) -> Plant:
    async def plant(tables: Notifications) -> None:
        await tables.connection.execute(f"UPDATE notifyqueue.lanes SET {assignments} WHERE channel = 'EMAIL'")

    return plant


PAUSED = "paused_at = now() - interval '2 hours', paused_by = 'key:1', pause_reason = 'someone@example.com wrote'"
OPEN = "opened_at = now() - interval '1 hour', cause = '503', probe_at = now(), probe_delay = '1 min'"


async def lag_retention(tables: Notifications) -> None:
    await insert_event(tables, fanned_out=True)
    await tables.connection.execute("UPDATE notifyqueue.retention_marks SET begun_at = now() - interval '3 days'")


async def switch_vacuum_off(tables: Notifications) -> None:
    await tables.connection.execute("ALTER TABLE notifyqueue.lanes SET (autovacuum_enabled = false)")


async def forget_migration(tables: Notifications) -> None:
    await tables.connection.execute("DELETE FROM notifyqueue.schema_migrations WHERE version = 1")


async def edit_migration(tables: Notifications) -> None:
    await tables.connection.execute("UPDATE notifyqueue.schema_migrations SET checksum = '' WHERE version = 1")


async def take_grant(tables: Notifications) -> None:
    await tables.connection.execute(f"REVOKE UPDATE ON notifyqueue.lanes FROM {LOGINS}_worker")


async def take_column(tables: Notifications) -> None:
    await tables.connection.execute(f"REVOKE SELECT (recipient_limit) ON notifyqueue.tenants FROM {LOGINS}_worker")


async def shut_out(tables: Notifications) -> None:
    await tables.connection.execute(f"REVOKE USAGE ON SCHEMA notifyqueue FROM {LOGINS}_dispatcher")


async def grant_more(tables: Notifications) -> None:
    await tables.connection.execute(
        f"GRANT SELECT (content) ON notifyqueue.notification_contents TO {LOGINS}_scheduler"
    )


def session(setting: str, value: str) -> Plant:
    """Of a login, in this database only: others have the login too."""

    async def plant(tables: Notifications) -> None:
        name = await tables.connection.fetchval("SELECT current_database()")
        await tables.connection.execute(f"ALTER ROLE {LOGINS}_worker IN DATABASE {name} SET {setting} = '{value}'")

    return plant


async def rename(tables: Notifications) -> None:
    await tables.connection.execute("ALTER TABLE notifyqueue.webhook_deliveries RENAME TO elsewhere")


# What is planted -> what is found, and for what.
FOUND: Mapping[str, tuple[Plant, list[tuple[str, str]]]] = {
    "due and nobody there": (strand, [("stranded_lanes", "EMAIL")]),
    "a suspect due and nobody there": (strand_suspect, [("stranded_lanes", "EMAIL"), ("crash_suspects", "EMAIL")]),
    "due and somebody who is to stop": (strand_by_draining, [("stranded_lanes", "EMAIL")]),
    "due and somebody who is gone": (strand_by_death, [("stranded_lanes", "EMAIL")]),
    "due and somebody there": (lag, [("lagging_lanes", "EMAIL")]),
    "a claim of the dead": (leave_claim, [("expired_leases", "")]),
    "an end that nobody saw": (end_unseen, [("ends_without_event", "")]),
    "another end that nobody saw": (end_again_unseen, [("ends_without_event", "")]),
    "a trigger that is off": (switch_off, [("triggers_off", "count_ends")]),
    "a trigger that is gone": (drop_trigger, [("triggers_off", "write_events")]),
    "an event for nobody": (leave_event, [("events_unassigned", "")]),
    "a webhook that is due": (leave_delivery, [("deliveries_overdue", "")]),
    "a webhook to nowhere": (leave_delivery_of_a_deleted_endpoint, [("deliveries_overdue", "")]),
    "a gate that is due": (wait_at_gate, [("gates_unopened", "EMAIL")]),
    "a gate for nobody": (set_gate, [("gates_without_waiters", "EMAIL")]),
    "who waits for ever": (wait, [("waiters_without_gate", "EMAIL")]),
    "a suspect": (suspect, [("crash_suspects", "EMAIL")]),
    "a pause": (lane(PAUSED), [("paused_lanes", "EMAIL")]),
    "an open breaker": (lane(OPEN), [("open_breakers", "EMAIL")]),
    "a hold": (lane("held_until = now() + interval '1 day'"), [("held_lanes", "EMAIL")]),
    "what was to go": (
        lag_retention,
        [("retention_lag", sweep) for sweep in ("CONTENTS", "EXPIRING_CONTENTS", "NOTIFICATIONS")],
    ),
    "autovacuum that is off": (switch_vacuum_off, [("vacuum_behind", "lanes")]),
    "a migration that is missing": (forget_migration, [("schema", "")]),
    "a migration that was edited": (edit_migration, [("schema", "")]),
    "a grant that is missing": (take_grant, [("logins", f"{LOGINS}_worker")]),
    "a grant of a column that is missing": (take_column, [("logins", f"{LOGINS}_worker")]),
    "a login that is missing": (shut_out, [("logins", "dispatcher")]),
    "a grant too many": (grant_more, [("logins_differ", f"{LOGINS}_scheduler")]),
    "plans that are kept": (session("plan_cache_mode", "auto"), [("logins_differ", f"{LOGINS}_worker")]),
    "another time": (session("TimeZone", "Europe/Berlin"), [("logins_differ", f"{LOGINS}_worker")]),
    "no timeout": (session("statement_timeout", "0"), [("logins_differ", f"{LOGINS}_worker")]),
    "a check that fails": (rename, [("unmade", "deliveries_overdue"), ("logins", ""), ("logins_differ", "")]),
}


@pytest.fixture
async def doctor(database_url: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(database_url, server_settings=SESSION)
    try:
        yield connection
    finally:
        await connection.close()


def told(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.check.name, finding.subject) for finding in findings]


def test_every_check_is_tried_here() -> None:
    tried = {name for _, found in FOUND.values() for name, _ in found} | {"held_snapshots"}
    assert tried == {check.name for check in CHECKS} | {"schema", "logins", "logins_differ", "unmade"}


@pytest.mark.parametrize("planted", [name for name in FOUND if name != "a check that fails"])
async def test_what_is_planted_is_found_and_nothing_else(
    notifications: Notifications, doctor: Connection, planted: str
) -> None:
    plant, expected = FOUND[planted]
    assert told(await diagnose(doctor, FAULTLESS)) == []
    await plant(notifications)
    findings = await diagnose(doctor, FAULTLESS)
    assert told(findings) == expected
    assert "example.com" not in as_json(findings) + "".join(map(line, findings))


async def test_a_check_that_fails_says_so_and_stands_in_no_others_way(
    notifications: Notifications, doctor: Connection
) -> None:
    await rename(notifications)
    await strand(notifications)
    findings = await diagnose(doctor, FAULTLESS)
    assert ("stranded_lanes", "EMAIL") in told(findings)
    (unmade,) = [finding for finding in findings if finding.check.name == "unmade"]
    assert (unmade.subject, unmade.facts) == ("deliveries_overdue", "42P01")


async def test_what_holds_vacuum_back_is_found(database_url: str, doctor: Connection) -> None:
    bounds = replace(FAULTLESS, long=timedelta())
    assert told(await diagnose(doctor, bounds)) == []
    idle = await asyncpg.connect(database_url)
    transaction = idle.transaction(isolation="repeatable_read")
    await transaction.start()
    pid = await idle.fetchval("SELECT pg_backend_pid()")
    (finding,) = await diagnose(doctor, bounds)
    assert (finding.check.name, finding.subject, finding.ids) == ("held_snapshots", "session", [str(pid)])
    await idle.close()


async def test_more_than_it_counts_is_at_least(notifications: Notifications, doctor: Connection) -> None:
    await notifications.connection.execute(
        "INSERT INTO notifyqueue.notifications (tenant_id, idempotency_key, fingerprint, channel, address, priority, "
        "max_attempts, due_at, next_attempt_at, created_at) SELECT 'default', n, '', 'EMAIL', 'a', 2, 5, now(), "
        "now() - interval '1 hour', now() - interval '1 hour' FROM generate_series(1, 1200) AS n"
    )
    (finding,) = await diagnose(doctor, FAULTLESS)
    assert (finding.count, finding.at_least, len(finding.ids)) == (1000, True, 5)
    assert "at least 1000" in line(finding)


async def test_under_load_it_is_silent_while_a_worker_runs(
    notifications: Notifications, doctor: Connection, database_url: str, start_worker: StartWorker
) -> None:
    """Also about what was long due when it was accepted, what is put off, who waits at a gate, and what has ended."""
    await limit(notifications, 3, HOUR)
    for number in range(120):
        await notifications.insert(f"past-{number}", address=f"a{number % 12}@example.com", due_in=-HOUR)
    await notifications.insert("future", due_in=DAY)
    provider = ScriptedProvider()
    await start_worker(database_url, provider)

    async def all_have_ended_or_wait() -> bool:
        assert told(await diagnose(doctor, Bounds())) == []
        counted = await notifications.connection.fetchval(
            "SELECT count(*) FROM notifyqueue.notifications WHERE status = 'SENT' OR waiting"
        )
        return bool(counted == 120)

    assert await eventually(all_have_ended_or_wait)
    assert (await notifications.statuses())["SENT"] == 36


async def test_a_lane_that_was_just_resumed_is_given_time(notifications: Notifications, doctor: Connection) -> None:
    await lag(notifications)
    await wait_at_gate(notifications)
    await notifications.connection.execute(
        "INSERT INTO notifyqueue.lane_history (channel, kind) VALUES ('EMAIL', 'LANE_RESUMED')"
    )
    assert told(await diagnose(doctor, FAULTLESS)) == []


async def test_a_lane_that_is_stopped_is_one_finding(notifications: Notifications, doctor: Connection) -> None:
    await lag(notifications)
    await wait_at_gate(notifications)
    await lane(PAUSED)(notifications)
    assert told(await diagnose(doctor, FAULTLESS)) == [("paused_lanes", "EMAIL")]


async def accept_late(tables: Notifications) -> None:
    await serve(tables)
    await tables.insert("late", due_in=-HOUR)


async def start_late(tables: Notifications) -> None:
    await serve(tables, since=timedelta(minutes=1))
    await insert_old(tables)


async def leave_delivery_of_a_paused_endpoint(tables: Notifications) -> None:
    await leave_delivery(tables)
    await tables.connection.execute("UPDATE notifyqueue.webhook_endpoints SET paused_until = now() + interval '1 hour'")


async def leave_delivery_of_an_endpoint_that_is_gone(tables: Notifications) -> None:
    await leave_delivery(tables)
    await tables.connection.execute(
        "UPDATE notifyqueue.webhook_endpoints SET enabled = false, disabled_reason = 'GONE'"
    )


@pytest.mark.parametrize(
    "plant",
    [accept_late, start_late, leave_delivery_of_a_paused_endpoint, leave_delivery_of_an_endpoint_that_is_gone],
)
async def test_what_is_as_it_should_be_is_no_finding(
    notifications: Notifications, doctor: Connection, plant: Plant
) -> None:
    await plant(notifications)
    assert told(await diagnose(doctor, FAULTLESS)) == []


async def test_a_claim_is_missed_two_leases_after_its_own_has_passed(
    notifications: Notifications, doctor: Connection
) -> None:
    await leave_claim(notifications)
    async with doctor.transaction():  # whose time stands still
        now = await doctor.fetchval("SELECT now()")
        for late, found in ((1, []), (3, [("expired_leases", "")])):
            await notifications.connection.execute(
                "UPDATE notifyqueue.notifications SET lease_expires_at = $1", now - late * AT_ONCE
            )
            assert told(await diagnose(doctor, FAULTLESS)) == found


async def test_no_claim_is_missed_while_nobody_may_sweep_since_the_database_started(
    notifications: Notifications, doctor: Connection
) -> None:
    await leave_claim(notifications)
    await notifications.connection.execute(
        "UPDATE notifyqueue.notifications SET lease_expires_at = now() - interval '10 days'"
    )
    assert told(await diagnose(doctor, Bounds(lease=DAY))) == []


async def test_a_gate_that_is_missing_is_set_as_a_worker_would_and_nothing_else_is_changed(
    notifications: Notifications,
) -> None:
    for plant in (wait, end_unseen, leave_claim, strand):
        await plant(notifications)
    before = await notifications.connection.fetch("SELECT n::text FROM notifyqueue.notifications AS n ORDER BY n.id")
    assert await repair(notifications.connection) == 1
    assert await repair(notifications.connection) == 0
    assert await notifications.connection.fetchval("SELECT count(*) FROM notifyqueue.recipient_gates") == 1
    assert await notifications.connection.fetchval("SELECT count(*) FROM notifyqueue.webhook_events") == 0
    assert before == await notifications.connection.fetch(
        "SELECT n::text FROM notifyqueue.notifications AS n ORDER BY n.id"
    )


@pytest.fixture
def owner(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Awaitable[tuple[int, str]]]:
    """Types a command of the doctor's."""
    monkeypatch.setenv("DATABASE_URL", database_url)

    async def run(*arguments: str) -> tuple[int, str]:
        code = await asyncio.to_thread(admin.main, ["doctor", *arguments])
        return code, capsys.readouterr().out

    return run


async def test_it_is_typed_read_by_a_program_and_judged_by_its_exit_code(
    owner: Callable[..., Awaitable[tuple[int, str]]], notifications: Notifications
) -> None:
    assert await owner() == (0, "nothing found\n")
    assert await owner("--json") == (0, "[]\n")
    await lane(PAUSED)(notifications)
    code, text = await owner()
    assert code == 3
    assert text.startswith("WARNING paused_lanes (EMAIL, 1, for 2 h, by key:1): ")
    await wait(notifications)
    code, text = await owner("--json", "--lease", "90s")
    assert code == 4
    assert [(one["check"], one["severity"], one["count"]) for one in json.loads(text)] == [
        ("waiters_without_gate", "ERROR", 1),
        ("paused_lanes", "WARNING", 1),
    ]
    assert (await owner("--repair"))[0] == 4
    assert (await owner())[0] == 3


async def test_a_database_without_the_schema_is_one_finding(
    notifications: Notifications, owner: Callable[..., Awaitable[tuple[int, str]]]
) -> None:
    await notifications.connection.execute("DROP SCHEMA notifyqueue CASCADE")
    code, text = await owner()
    assert (code, text.count("\n")) == (4, 1)
    assert "schema (1, there is none in this database)" in text


async def test_each_login_has_the_settings_that_are_looked_for(notifications: Notifications) -> None:
    for service in SERVICES:
        settings = await notifications.connection.fetchval(
            "SELECT rolconfig FROM pg_roles WHERE rolname = $1", f"{LOGINS}_{service}"
        )
        assert {f"{name}={value}" for name, value in OF_LOGINS.items()} <= {
            setting.replace("TimeZone", "timezone") for setting in settings
        }
