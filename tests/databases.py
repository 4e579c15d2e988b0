"""Databases to copy: one that was migrated, and those that were filled once, on each server that is asked for them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import asyncpg

from sandbox.postgres import Postgres
from shared.migrations import migrate
from shared.roles import SERVICES, create_roles

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Fill = Callable[[Connection], Awaitable[None]]

MIGRATED = "migrated"
LOGINS = "tested"
FRESH, ANALYSED = "", "VACUUM ANALYZE"

NO_AUTOVACUUM = """
DO $$
DECLARE name text;
BEGIN
  FOR name IN
    SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = 'notifyqueue'::regnamespace AND c.relkind = 'r'
  LOOP
    EXECUTE format('ALTER TABLE notifyqueue.%I SET (autovacuum_enabled = off)', name);
  END LOOP;
END $$
"""


async def make_migrated(server: Postgres, owner: Connection) -> None:
    """Where it is not there yet."""
    if await _exists(owner, MIGRATED):
        return
    # Renamed at the end, so that a migration that fails leaves no template behind.
    await owner.execute("DROP DATABASE IF EXISTS migrating WITH (FORCE)")
    await owner.execute("CREATE DATABASE migrating")
    url = server.url_of("migrating")
    await migrate(url)
    await create_roles(url, LOGINS, dict.fromkeys(SERVICES, LOGINS))
    await owner.execute(f"ALTER DATABASE migrating RENAME TO {MIGRATED}")


async def filled(server: Postgres, name: str, fill: Fill, then: str = FRESH) -> str:
    """The URL of a database that `fill` filled and nobody vacuums, which stays as long as its server.

    It is for tests that leave it as they found it, or copy it. `then` is what was done to it once after that, as
    ANALYSED; without, it has no statistics.
    """
    async with connected(server) as owner:
        if not await _exists(owner, name):
            await make_migrated(server, owner)
            await owner.execute("DROP DATABASE IF EXISTS filling WITH (FORCE)")
            await copy(owner, MIGRATED, "filling")
            async with connected(server, "filling") as connection:
                await connection.execute(NO_AUTOVACUUM)
                await fill(connection)
            await owner.execute(f"ALTER DATABASE filling RENAME TO {name}")
        if then == FRESH:
            return server.url_of(name)
        treated = f"{name}_{then.lower().replace(' ', '_')}"
        if not await _exists(owner, treated):
            await copy(owner, name, treated)
            async with connected(server, treated) as connection:
                await connection.execute(then)
        return server.url_of(treated)


async def copy(owner: Connection, template: str, name: str) -> None:
    await owner.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")


@asynccontextmanager
async def connected(server: Postgres, database: str | None = None) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(server.url_of(database) if database else server.url)
    try:
        yield connection
    finally:
        await connection.close()


async def _exists(owner: Connection, database: str) -> bool:
    found = await owner.fetchval("SELECT count(*) FROM pg_database WHERE datname = $1", database)
    return bool(found)
