"""One login role per service, with the grants that its statements need and no more."""

from collections.abc import Mapping

import asyncpg

SERVICES = ("scheduler", "worker", "dispatcher")

# Table or function -> service -> privileges. A statement without its line here fails in the first test that runs it.
TABLES: Mapping[str, Mapping[str, str]] = {
    "schema_migrations": {"scheduler": "SELECT", "worker": "SELECT", "dispatcher": "SELECT"},
    "tenants": {"scheduler": "SELECT"},
    "notifications": {"scheduler": "SELECT, INSERT, UPDATE", "worker": "SELECT, UPDATE"},
    "notification_contents": {"scheduler": "INSERT", "worker": "SELECT"},
    "notification_history": {"scheduler": "SELECT, INSERT", "worker": "SELECT, INSERT"},
    "webhook_events": {
        "scheduler": "SELECT (id, tenant_id, fanned_out_at), INSERT",  # INSERT: the event trigger of what they end
        "worker": "INSERT",
        "dispatcher": "SELECT, UPDATE",
    },
    "webhook_endpoints": {"dispatcher": "SELECT, INSERT, UPDATE"},
    "webhook_deliveries": {
        "scheduler": "SELECT (tenant_id, delivered_at, given_up_at, next_attempt_at)",
        "dispatcher": "SELECT, INSERT, UPDATE",
    },
    "webhook_attempts": {"dispatcher": "SELECT, INSERT"},
}

# A statement that takes longer is a fault, and must not hold a connection or a lock for ever.
TIMEOUTS = {
    "statement_timeout": "10s",
    "lock_timeout": "1s",
    "idle_in_transaction_session_timeout": "10s",
}


# A plan for any tenant takes the tenant for an average one, and reads a small one's page past all the large ones' rows.
PLANS = {"scheduler": "force_custom_plan"}


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
                await _execute(connection, "ALTER ROLE %I SET plan_cache_mode = %L", name, PLANS.get(service, "auto"))
                await _grant(connection, service, name)
    finally:
        await connection.close()
    return names


async def create_login(connection: "asyncpg.Connection[asyncpg.Record]", name: str, password: str) -> None:
    """Makes a role that logs in with this password, under the timeouts of all; or gives it these."""
    known = await connection.fetchval("SELECT true FROM pg_catalog.pg_roles WHERE rolname = $1", name)
    await _execute(connection, f"{'ALTER' if known else 'CREATE'} ROLE %I LOGIN PASSWORD %L", name, password)
    for setting, value in TIMEOUTS.items():
        await _execute(connection, "ALTER ROLE %I SET " + setting + " = %L", name, value)


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
