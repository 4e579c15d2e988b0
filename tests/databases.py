"""Databases to copy: one that was migrated, and those that were filled once, on each server that is asked for them."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import asyncpg

from sandbox.postgres import Postgres
from shared.migrations import migrate
from shared.roles import SERVICES, create_roles, scram_verifier

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Fill = Callable[[Connection], Awaitable[None]]

MIGRATED = "migrated"
LOGINS = "tested"
# A password that everybody may read is not to be hard to guess, and the tests connect thousands of times.
ITERATIONS = 1
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


class Maker:
    """Makes the tests' databases on a server, and drops them: by one connection, which costs as much as a copy does.

    A loop ends with its test, and a connection with its loop. So this one has a thread and a loop of its own.
    """

    def __init__(self, server: Postgres, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._owner: Connection | None = None
        self._turn = asyncio.Lock()

    async def make(self, template: str, name: str) -> None:
        await self._there(self._make(template, name))

    async def drop(self, name: str) -> None:
        await self._there(self._drop(name))

    async def close(self) -> None:
        if self._owner:
            await self._owner.close()

    async def _make(self, template: str, name: str) -> None:
        async with self._turn:
            owner = await self._connected()
            if template == MIGRATED:
                await make_migrated(self._server, owner)
            await copy(owner, template, name)

    async def _drop(self, name: str) -> None:
        async with self._turn:
            await (await self._connected()).execute(f"DROP DATABASE {name} WITH (FORCE)")

    async def _connected(self) -> Connection:
        if self._owner is None or self._owner.is_closed():  # as after a test that stopped the server
            self._owner = await asyncpg.connect(self._server.url)
        return self._owner

    async def _there(self, work: Coroutine[Any, Any, None]) -> None:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))


@contextmanager
def maker_on(server: Postgres) -> Iterator[Maker]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="maker")
    thread.start()
    maker = Maker(server, loop)
    try:
        yield maker
    finally:
        asyncio.run_coroutine_threadsafe(maker.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


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
    superuser = {str(urlsplit(server.url).username): str(urlsplit(server.url).password)}
    for login, password in ({f"{LOGINS}_{service}": LOGINS for service in SERVICES} | superuser).items():
        await owner.execute(f"ALTER ROLE {login} PASSWORD '{scram_verifier(password, iterations=ITERATIONS)}'")
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
