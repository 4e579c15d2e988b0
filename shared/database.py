"""PostgreSQL, as the services see it: statements from files, connections that are given back clean, faults by kind."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from importlib import resources
from typing import Any, Protocol, Self

import asyncpg
from asyncpg.connect_utils import SessionAttribute
from asyncpg.pool import PoolConnectionProxy

from shared.batching import BadItem, Contention
from shared.errors import DatabaseUnavailable

# SQLSTATE classes and codes (PostgreSQL, appendix A).
# Connection, login, no such database, resources, operator, read-only standby.
UNAVAILABLE = ("08", "28", "3D000", "53", "57", "25006")
LOCKED = "55P03"
CONTENTION = ("40001", "40P01")
BAD_ITEM = ("22", "23")  # data, which asyncpg also says of what it cannot send; constraint

CONNECT_TIMEOUT = 5.0
COMMAND_TIMEOUT = 15.0  # the server's own statement_timeout is shorter: this one is for a server that is gone


class DatabaseBug(Exception):
    """A statement is wrong, or may not do what it does."""


class Locked(Contention):
    """Somebody holds a lock for longer than `lock_timeout`."""


LockTimeout = asyncpg.LockNotAvailableError
"""The same within a transaction, whose faults are told as ours only when it ends."""


class Executor(Protocol):
    """What runs a statement: the database itself, or one transaction of it."""

    async def fetch(self, query: str, /, *args: object) -> "list[asyncpg.Record]": ...


class Database:
    """A pool that connects when it is needed, so that a process can start, and live, without its database.

    Faults come out as DatabaseUnavailable (try later), Contention (try again), BadItem (that row will never do) and
    DatabaseBug (none of these), with asyncpg's own error as the cause.
    """

    def __init__(self, url: str, *, name: str, size: int = 8) -> None:
        self._url = url
        self._name = name
        self._size = size

    async def __aenter__(self) -> Self:
        self._pool = await asyncpg.create_pool(
            self._url,
            min_size=0,
            max_size=self._size,
            timeout=CONNECT_TIMEOUT,
            command_timeout=COMMAND_TIMEOUT,
            reset=_reset,
            target_session_attrs=SessionAttribute.read_write,
            # A day of a delay has 24 hours, also where the server's time zone changes its clocks.
            server_settings={"application_name": self._name, "timezone": "UTC"},
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.close()

    async def fetch(self, query: str, /, *args: object) -> "list[asyncpg.Record]":
        """The rows of one statement, in a transaction of its own."""
        async with self._connected() as connection:
            return await connection.fetch(query, *args)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Executor]:
        """Several statements that commit together. Never around anything but statements."""
        async with self._connected() as connection, connection.transaction():
            yield connection

    @asynccontextmanager
    async def _connected(self) -> "AsyncIterator[PoolConnectionProxy[asyncpg.Record]]":
        with translated_faults():
            async with self._pool.acquire(timeout=CONNECT_TIMEOUT) as connection:
                try:
                    yield connection
                except asyncpg.ReadOnlySQLTransactionError:
                    connection.terminate()  # a primary that became a standby: the next one is looked for anew
                    raise


@contextmanager
def translated_faults() -> Iterator[None]:
    """Turns what asyncpg raises into the kinds of fault that callers can do something about."""
    try:
        yield
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
        raise _kind_of(error) from error
    except asyncpg.InternalClientError as error:  # an answer that stopped in the middle
        raise DatabaseUnavailable from error


def _kind_of(error: Exception) -> Exception:
    if isinstance(error, asyncpg.PostgresError):
        return _by_sqlstate(error)
    # asyncpg has one class for a connection that was lost and for an argument too many.
    if isinstance(error, asyncpg.InterfaceError) and not any(word in str(error) for word in ("clos", "release")):
        return DatabaseBug()
    return DatabaseUnavailable()


def _by_sqlstate(error: asyncpg.PostgresError) -> Exception:
    state = error.sqlstate or ""
    if state == LOCKED:
        return Locked()
    if state.startswith(UNAVAILABLE):
        return DatabaseUnavailable()
    if state in CONTENTION:
        return Contention()
    return BadItem() if state.startswith(BAD_ITEM) else DatabaseBug()


async def _reset(_: "asyncpg.Connection[asyncpg.Record]") -> None:
    """No statement of ours leaves anything in the session, so asyncpg's own reset would be a round trip for nothing.

    A transaction that was left open has been rolled back before.
    """


class Statements:
    """The `*.sql` files of a package, by name."""

    def __init__(self, package: str) -> None:
        files = resources.files(package).joinpath("sql").iterdir()
        self._texts = {file.name.removesuffix(".sql"): file.read_text("utf-8") for file in files}

    def __getitem__(self, name: str) -> str:
        return self._texts[name]


def columns(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    """Rows turned into one array per column, as `unnest` takes them. `width` holds where there are no rows."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]
