"""One login role per service, with the grants that its statements need and no more."""

import base64
import hashlib
import hmac
import os
import stringprep
import unicodedata
from collections.abc import Mapping

import asyncpg

SERVICES = ("scheduler", "worker", "dispatcher")

# Table or function -> service -> privileges. A statement without its line here fails in the first test that runs it.
TABLES: Mapping[str, Mapping[str, str]] = {
    "schema_migrations": {"scheduler": "SELECT", "worker": "SELECT", "dispatcher": "SELECT"},
    "tenants": {
        "scheduler": "SELECT",
        "worker": "SELECT (id, recipient_limit, recipient_window, required_categories)",
        "dispatcher": "SELECT (id, endpoint_quota)",
    },
    "api_keys": {"scheduler": "SELECT", "worker": "SELECT", "dispatcher": "SELECT"},
    "notifications": {"scheduler": "SELECT, INSERT, UPDATE", "worker": "SELECT, UPDATE, DELETE"},
    "notification_contents": {"scheduler": "SELECT (notification_id), INSERT, DELETE", "worker": "SELECT, DELETE"},
    "notification_history": {"scheduler": "SELECT, INSERT", "worker": "SELECT, INSERT, DELETE"},
    "suppressions": {
        "scheduler": "SELECT, INSERT, UPDATE (id), DELETE",  # UPDATE: to lock what is deleted, in its order
        "worker": "SELECT, INSERT (tenant_id, channel, address, source, code, erased)",
    },
    "subscribers": {"scheduler": "SELECT, INSERT, UPDATE, DELETE"},
    "accept_buckets": {"scheduler": "SELECT, INSERT (tenant_id), UPDATE (empty_at, pending, counted_at)"},
    "templates": {
        "scheduler": "SELECT, INSERT (tenant_id, name, channel, newest), UPDATE (newest, channel, erased_at)"
    },
    "template_versions": {"scheduler": "SELECT, INSERT, DELETE"},
    "recipient_reservations": {"worker": "SELECT, INSERT, UPDATE, DELETE"},
    "recipient_gates": {
        "scheduler": "SELECT (tenant_id, channel, limit_key, opens_at)",
        "worker": "SELECT, INSERT, UPDATE, DELETE",
    },
    "lanes": {"scheduler": "SELECT, UPDATE", "worker": "SELECT, UPDATE"},
    "lane_history": {"scheduler": "SELECT, INSERT", "worker": "SELECT, INSERT, DELETE"},
    "workers": {"scheduler": "SELECT", "worker": "SELECT, INSERT, UPDATE, DELETE"},
    "webhook_events": {
        # INSERT: the event trigger of what they end. The columns: statistics, and what metrics count; so below.
        "scheduler": (
            "SELECT (id, tenant_id, notification_id, status, redrive_count, occurred_at, fanned_out_at), INSERT"
        ),
        "worker": "SELECT (id, notification_id, fanned_out_at), INSERT, DELETE",  # retention, here and below
        "dispatcher": "SELECT, UPDATE",
    },
    "webhook_endpoints": {
        "scheduler": "SELECT (id, enabled, paused_until, next_due_at, deleted_at)",
        "dispatcher": "SELECT, INSERT, UPDATE",
    },
    "webhook_deliveries": {
        "scheduler": "SELECT (id, tenant_id, endpoint_id, delivered_at, given_up_at, next_attempt_at)",
        "worker": "SELECT (id, event_id, delivered_at, given_up_at), DELETE",
        "dispatcher": "SELECT, INSERT, UPDATE",
    },
    "webhook_attempts": {"worker": "SELECT (delivery_id), DELETE", "dispatcher": "SELECT, INSERT"},
    "retention_marks": {"scheduler": "SELECT", "worker": "SELECT, UPDATE (mark, begun_at)"},
    # INSERT: the trigger that counts the events of what they end.
    "status_deltas": {"scheduler": "SELECT, INSERT", "worker": "SELECT, INSERT, UPDATE (id), DELETE"},
    "status_totals": {"scheduler": "SELECT", "worker": "SELECT, INSERT, UPDATE (count)"},
}

# A statement that takes longer is a fault, and must not hold a connection or a lock for ever.
TIMEOUTS = {
    "statement_timeout": "10s",
    "lock_timeout": "1s",
    "idle_in_transaction_session_timeout": "10s",
}


SCRAM_ITERATIONS = 4096  # PostgreSQL's own number

# Each execution is planned for its arguments and for the tables as large as they are then. A plan that is kept was made
# when a process began, perhaps while the tables were nearly empty: a claim then reads the whole table, for each that it
# takes, until somebody analyses it. And a plan for any tenant takes the tenant for an average one, and reads a small
# one's page past all the large ones' rows.
PLANS = "force_custom_plan"

# A day of a delay has 24 hours, also where a pooler drops what the services ask for when they connect.
SESSION = {"plan_cache_mode": PLANS, "timezone": "UTC"}


async def create_roles(url: str, prefix: str, passwords: Mapping[str, str]) -> dict[str, str]:
    """Makes `<prefix>_<service>` log in with its password and do what its service does; answers the names.

    Roles belong to the whole server, so the prefix keeps two installations on one server apart. Run again, it sets
    the passwords and grants anew. `url` is the owner's, who must be allowed to create roles.
    """
    names = {service: f"{prefix}_{service}" for service in SERVICES}
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            for service, name in names.items():
                await create_login(connection, name, passwords[service])
                for setting, value in SESSION.items():
                    await _execute(connection, "ALTER ROLE %I SET " + setting + " = %L", name, value)
                await _grant(connection, service, name)
    finally:
        await connection.close()
    return names


async def create_login(connection: "asyncpg.Connection[asyncpg.Record]", name: str, password: str) -> None:
    """Makes a role that logs in with this password, under the timeouts of all; or gives it these."""
    known = await connection.fetchval("SELECT true FROM pg_catalog.pg_roles WHERE rolname = $1", name)
    verifier = scram_verifier(password)
    await _execute(connection, f"{'ALTER' if known else 'CREATE'} ROLE %I LOGIN PASSWORD %L", name, verifier)
    for setting, value in TIMEOUTS.items():
        await _execute(connection, "ALTER ROLE %I SET " + setting + " = %L", name, value)


def scram_verifier(password: str, *, iterations: int = SCRAM_ITERATIONS) -> str:
    """What PostgreSQL stores of a password (RFC 5803). In a statement it may stand: those are written in the log."""
    # As clients write it before they prove that they know it (RFC 4013).
    spaced = ["" if stringprep.in_table_b1(c) else " " if stringprep.in_table_c12(c) else c for c in password]
    known = unicodedata.ucd_3_2_0.normalize("NFKC", "".join(spaced)).encode()
    salt = os.urandom(16)
    salted = hashlib.pbkdf2_hmac("sha256", known, salt, iterations)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    encoded_salt, encoded_stored, encoded_server = (base64.b64encode(part).decode() for part in (salt, stored, server))
    return f"SCRAM-SHA-256${iterations}:{encoded_salt}${encoded_stored}:{encoded_server}"


async def _grant(connection: "asyncpg.Connection[asyncpg.Record]", service: str, name: str) -> None:
    await _execute(connection, "REVOKE ALL ON ALL TABLES IN SCHEMA notifyqueue FROM %I", name)
    await _execute(connection, "GRANT USAGE ON SCHEMA notifyqueue TO %I", name)
    await _execute(connection, "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA notifyqueue TO %I", name)
    for table, services in TABLES.items():
        if privileges := services.get(service):
            await _execute(connection, f"GRANT {privileges} ON notifyqueue.{table} TO %I", name)


async def _execute(connection: "asyncpg.Connection[asyncpg.Record]", template: str, *values: str) -> None:
    # These statements take no parameters, so the server itself quotes names and literals into them.
    statement = await connection.fetchval("SELECT format($1, VARIADIC $2::text[])", template, list(values))
    await connection.execute(statement)
