"""Databases for the tests: every test has its own, copied from one that was migrated once."""

from shared import starting

starting.spare_children()

import functools
import itertools
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import hypothesis
import pytest
import structlog

from sandbox.postgres import Postgres
from shared.logs import all_listed
from tests.databases import LOGINS, MIGRATED, Maker, maker_on
from tests.notifications import Notifications
from tests.programs import require_program

DEBIAN_15 = Path("/usr/lib/postgresql/15/bin")
# Nothing here has to outlive the machine, and to outlive a killed server it need not be on the disk.
HASTY = {"fsync": "off", "full_page_writes": "off", "max_wal_size": "256MB"}
MEMORY = Path("/dev/shm")
ROOM = 4 * 1024**3  # bytes: for two servers in each of three processes
FIRST_OF_OURS = 16384  # below are the numbers of PostgreSQL's own types
ASKED_NOTHING = SimpleNamespace(name="none")  # so no statement of the connection has gone for a question
CLOCK = pytest.StashKey[Any]()
RING_AGAIN = 10.0
# What waits for several processes, one after another, is to say itself which of them did not come.
PATIENT = ("tests/e2e", "tests/chaos")
PATIENCE = 600.0

# A machine that is busy for an instant has found no fault in a rule.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(PATIENT):
            item.add_marker(pytest.mark.timeout(PATIENCE))


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Iterator[None]:
    """A test's time rings again and again: where a task that is not the test's own was running, that took the first."""
    result = yield
    if settings.method == "signal":
        signal.setitimer(signal.ITIMER_REAL, settings.timeout, RING_AGAIN)
    item.stash[CLOCK] = settings
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """A failure stops the clock, for whoever debugs it. What then hangs as it ends must not do so for ever."""
    if CLOCK in item.stash:
        item.ihook.pytest_timeout_cancel_timer(item=item)
        item.ihook.pytest_timeout_set_timer(item=item, settings=item.stash[CLOCK])


@pytest.fixture(scope="session", autouse=True)
def plain_logs() -> None:
    """Without the default's coloured tracebacks, which take longer than most tests."""
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, all_listed, structlog.processors.KeyValueRenderer()]
    )


@pytest.fixture(scope="session", autouse=True)
def known_types() -> Iterator[None]:
    """What an array of PostgreSQL's own is, is asked once of a server's version instead of by each connection.

    asyncpg's question takes longer to plan than most statements of a test take, and its answer is always the same.
    """
    ask = asyncpg.Connection._introspect_types  # type: ignore[attr-defined]
    answers: dict[object, Any] = {}

    async def asked_once(connection: Any, types: Sequence[int], within: float) -> tuple[Any, Any]:
        known = (connection.get_server_version(), frozenset(types))
        if known in answers:
            return answers[known], ASKED_NOTHING
        answer, statement = await ask(connection, types, within)
        if max(types) < FIRST_OF_OURS:
            answers[known] = answer
        return answer, statement

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncpg.Connection, "_introspect_types", asked_once)
        yield


class MakeDatabase(Protocol):
    async def __call__(self, server: Postgres = ..., template: str = ...) -> str: ...


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The server that `make up` runs."""
    with _cluster() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_15() -> Iterator[Postgres]:
    """The oldest server that is supported."""
    with _cluster(require_program("PostgreSQL 15", DEBIAN_15 / "postgres").parent) as server:
        yield server


@pytest.fixture(scope="session")
def maker_of() -> Iterator[Callable[[Postgres], Maker]]:
    with ExitStack() as stack:
        yield functools.cache(lambda server: stack.enter_context(maker_on(server)))


@pytest.fixture
async def make_database(postgres: Postgres, maker_of: Callable[[Postgres], Maker]) -> AsyncIterator[MakeDatabase]:
    """Makes a migrated database, on `postgres` or the server that is given; it goes when the test ends."""
    made: list[tuple[Postgres, str]] = []

    async def make(server: Postgres = postgres, template: str = MIGRATED) -> str:
        name = f"test_{next(_numbers)}"
        await maker_of(server).make(template, name)
        made.append((server, name))
        return server.url_of(name)

    yield make
    for server, name in made:
        await maker_of(server).drop(name)


@pytest.fixture
async def database_url(request: pytest.FixtureRequest, make_database: MakeDatabase) -> str:
    """A migrated database of the test's own.

    On every server that is supported, with
    `@pytest.mark.parametrize("database_url", ["postgres", "postgres_15"], indirect=True)`.
    """
    return await make_database(request.getfixturevalue(getattr(request, "param", "postgres")))


def login(url: str, service: str) -> str:
    """The URL of a service's own login, which may do what its statements need and no more."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{LOGINS}_{service}:{LOGINS}@{host}"))


@contextmanager
def _cluster(binaries: Path | None = None) -> Iterator[Postgres]:
    # Not pytest's own folder, which is closed to the account that runs the server for root.
    folder = Path(tempfile.mkdtemp(prefix="notifyqueue-tests-", dir=_memory()))
    folder.chmod(0o755)
    try:
        with Postgres(folder / "data", HASTY, binaries) as server:
            yield server
    finally:
        shutil.rmtree(folder)


def _memory() -> Path | None:
    """Where a database is copied ten times as fast, if there is room for it."""
    return MEMORY if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM else None


@pytest.fixture
async def notifications(database_url: str) -> AsyncIterator[Notifications]:
    """The tables of `database_url`, by a connection of the test's own."""
    connection = await asyncpg.connect(database_url)
    try:
        yield Notifications(connection)
    finally:
        await connection.close()
