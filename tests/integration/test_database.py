"""Faults come out by what can be done about them: real ones, of a real PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import asyncpg
import pytest

from sandbox.postgres import Postgres
from shared import database as database_module
from shared.batching import BadItem, Contention
from shared.database import Database, DatabaseBug, Executor, Locked, Statements, columns
from shared.errors import DatabaseUnavailable
from tests.integration.tcp_proxy import TcpProxy
from tests.waiting import eventually

ADD = "INSERT INTO notifyqueue.tenants (id) VALUES ($1)"
TOUCH = "UPDATE notifyqueue.tenants SET horizon = horizon * 2 WHERE id = $1"
PID = "SELECT pg_backend_pid() AS pid"


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with Database(database_url, name="test", size=4) as database:
        yield database


@pytest.fixture
async def single(database_url: str) -> AsyncIterator[Database]:
    """One that has to use the same connection again."""
    async with Database(database_url, name="test", size=1) as database:
        yield database


@pytest.fixture
async def other(database_url: str) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
    """Somebody else on the same database."""
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


async def answers(database: Database) -> bool:
    try:
        await database.fetch("SELECT 1")
    except DatabaseUnavailable:
        return False
    return True


async def in_one(database: Database, *statements: tuple[str, *tuple[str, ...]]) -> None:
    """In one transaction; each with its arguments."""
    async with database.transaction() as transaction:
        for statement, *arguments in statements:
            await transaction.fetch(statement, *arguments)


async def tenants(executor: Executor) -> list[str]:
    return [row["id"] for row in await executor.fetch("SELECT id FROM notifyqueue.tenants ORDER BY id")]


def cause(caught: "pytest.ExceptionInfo[Exception]") -> asyncpg.PostgresError:
    error = caught.value.__cause__
    assert isinstance(error, asyncpg.PostgresError)
    return error


async def test_a_statement_is_committed_when_it_answers(
    database: Database, other: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await database.fetch(ADD, "acme")
    assert await tenants(other) == ["acme", "default"]


async def test_a_process_is_known_to_the_server_by_its_name(database: Database) -> None:
    rows = await database.fetch("SELECT current_setting('application_name') AS name")
    assert rows[0]["name"] == "test"


async def test_the_statements_of_a_transaction_commit_together(
    database: Database, other: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    async with database.transaction() as transaction:
        await transaction.fetch(ADD, "one")
        await transaction.fetch(ADD, "two")
        assert await tenants(other) == ["default"]
    assert await tenants(other) == ["default", "one", "two"]


async def test_a_transaction_that_fails_leaves_nothing(database: Database) -> None:
    with pytest.raises(BadItem):
        await in_one(database, (ADD, "one"), (ADD, "default"))
    assert await tenants(database) == ["default"]


@pytest.mark.parametrize(
    ("statement", "arguments"),
    [
        pytest.param("SELEC 1", [], id="syntax"),
        pytest.param("SELECT 1 FROM notifyqueue.nothing", [], id="unknown table"),
        pytest.param("SELECT $1::int", [], id="an argument too few"),
        pytest.param("SELECT 1", ["one"], id="an argument too many"),
        pytest.param("SELECT 1; SELECT 2", [], id="two statements"),
        pytest.param("SAVEPOINT one", [], id="no transaction"),
    ],
)
async def test_a_wrong_statement_is_a_bug(single: Database, statement: str, arguments: list[object]) -> None:
    with pytest.raises(DatabaseBug):
        await single.fetch(statement, *arguments)
    assert await answers(single)


async def test_a_missing_privilege_is_a_bug(single: Database) -> None:
    with pytest.raises(DatabaseBug):
        await in_one(single, ("SET LOCAL ROLE pg_monitor",), (ADD, "acme"))
    assert await answers(single)


@pytest.mark.parametrize(
    ("statement", "argument", "sqlstate"),
    [
        pytest.param(ADD, "default", "23505", id="a key that is taken"),
        pytest.param(ADD, "Not An Id", "23514", id="a check"),
        pytest.param(ADD, None, "23502", id="a null"),
        pytest.param("SELECT $1::text::int", "x", "22P02", id="not a number"),
        pytest.param("SELECT 1 / $1::int", 0, "22012", id="a division by zero"),
        pytest.param("SELECT $1::text", "a\0", "22021", id="a NUL"),
    ],
)
async def test_data_that_the_server_refuses_is_a_bad_item(
    single: Database, statement: str, argument: object, sqlstate: str
) -> None:
    with pytest.raises(BadItem) as caught:
        await single.fetch(statement, argument)
    assert cause(caught).sqlstate == sqlstate
    assert await answers(single)


@pytest.mark.parametrize(
    ("statement", "argument"),
    [
        pytest.param("SELECT $1::text", "\ud800", id="half a character"),
        pytest.param("SELECT $1::text", 1, id="the wrong type"),
        pytest.param("SELECT $1::smallint", 2**15, id="a number out of range"),
        pytest.param("SELECT $1::text[]", ["a", "\ud800"], id="half a character in an array"),
    ],
)
async def test_data_that_is_refused_before_it_is_sent_is_a_bad_item(
    single: Database, statement: str, argument: object
) -> None:
    with pytest.raises(BadItem):
        await single.fetch(statement, argument)
    assert await answers(single)


async def test_the_constraint_that_was_violated_is_known(database: Database) -> None:
    with pytest.raises(BadItem) as caught:
        await database.fetch(ADD, "default")
    assert cause(caught).constraint_name == "tenants_pkey"


async def test_of_two_that_lock_each_other_out_one_meets_contention(database: Database) -> None:
    await database.fetch(ADD, "acme")
    both_hold_one = asyncio.Barrier(2)

    async def take(first: str, second: str) -> None:
        async with database.transaction() as transaction:
            await transaction.fetch(TOUCH, first)
            await both_hold_one.wait()
            await transaction.fetch(TOUCH, second)

    ends = await asyncio.gather(take("acme", "default"), take("default", "acme"), return_exceptions=True)
    (loser,) = [end for end in ends if end is not None]
    assert isinstance(loser, Contention)
    assert isinstance(loser.__cause__, asyncpg.DeadlockDetectedError)


async def test_of_two_that_cannot_be_put_in_order_one_meets_contention(
    database: Database, other: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    async def overtaken() -> None:
        async with database.transaction() as transaction:
            await transaction.fetch("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            await tenants(transaction)
            await other.execute(TOUCH, "default")
            await transaction.fetch(TOUCH, "default")

    with pytest.raises(Contention) as caught:
        await overtaken()
    assert cause(caught).sqlstate == "40001"


async def test_a_statement_that_takes_too_long_is_unavailable(single: Database) -> None:
    with pytest.raises(DatabaseUnavailable) as caught:
        await in_one(single, ("SET LOCAL statement_timeout = '20ms'",), ("SELECT pg_sleep(600)",))
    assert cause(caught).sqlstate == "57014"
    assert await answers(single)


async def test_a_lock_that_is_not_to_be_had_is_contention(
    single: Database, other: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    async with other.transaction():
        await other.execute(TOUCH, "default")
        with pytest.raises(Locked) as caught:
            await in_one(single, ("SET LOCAL lock_timeout = '20ms'",), (TOUCH, "default"))
    assert cause(caught).sqlstate == "55P03"
    assert await answers(single)


async def test_a_server_that_stops_is_unavailable_and_comes_back_by_itself(
    postgres: Postgres, database: Database
) -> None:
    assert await answers(database)
    postgres.stop()
    try:
        with pytest.raises(DatabaseUnavailable):
            await database.fetch("SELECT 1")
    finally:
        postgres.start()
    await eventually(lambda: answers(database))


async def test_a_server_that_stops_in_the_middle_is_unavailable(postgres: Postgres, database: Database) -> None:
    sleeping = asyncio.create_task(database.fetch("SELECT pg_sleep(600)"))
    await eventually(lambda: is_running(database, "pg_sleep"))
    postgres.stop()
    try:
        with pytest.raises(DatabaseUnavailable):
            await sleeping
    finally:
        postgres.start()
    await eventually(lambda: answers(database))


async def test_a_process_starts_without_its_database(postgres: Postgres, database_url: str) -> None:
    postgres.stop()
    try:
        async with Database(database_url, name="test") as database:
            assert not await answers(database)
            postgres.start()
            await eventually(lambda: answers(database))
    finally:
        postgres.start()


async def is_running(database: Database, word: str) -> bool:
    found = await database.fetch(
        "SELECT FROM pg_stat_activity WHERE query LIKE $1 AND state = 'active' AND pid <> pg_backend_pid()", f"%{word}%"
    )
    return bool(found)


async def test_a_statement_whose_backend_is_terminated_is_unavailable(
    single: Database, other: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    (row,) = await single.fetch(PID)
    sleeping = asyncio.create_task(single.fetch("SELECT pg_sleep(600)"))
    await eventually(
        lambda: other.fetchval("SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = $1", row["pid"])
    )
    await other.execute("SELECT pg_terminate_backend($1)", row["pid"])
    with pytest.raises(DatabaseUnavailable):
        await sleeping
    assert await answers(single)


async def test_an_idle_connection_that_is_terminated_is_replaced(
    single: Database, other: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    (before,) = await single.fetch(PID)
    await other.execute("SELECT pg_terminate_backend($1, 10000)", before["pid"])
    await eventually(lambda: answers(single))
    (after,) = await single.fetch(PID)
    assert after["pid"] != before["pid"]


@pytest.mark.parametrize(("what", "instead"), [("password", "guessed"), ("database", "nowhere")])
async def test_a_database_that_does_not_let_us_in_is_unavailable(database_url: str, what: str, instead: str) -> None:
    parts = urlsplit(database_url)
    actual = parts.password if what == "password" else parts.path.removeprefix("/")
    async with Database(database_url.replace(str(actual), instead), name="test") as database:
        with pytest.raises(DatabaseUnavailable):
            await database.fetch("SELECT 1")


async def test_a_server_that_may_only_be_read_is_not_connected_to(
    database: Database, database_url: str, other: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    name = urlsplit(database_url).path.removeprefix("/")
    await other.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    assert not await answers(database)
    await other.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    assert await answers(database)


@pytest.mark.parametrize("in_transaction", [False, True])
async def test_a_connection_that_may_suddenly_only_read_is_replaced(single: Database, in_transaction: bool) -> None:
    await single.fetch("SET default_transaction_read_only = on")  # as a primary that became a standby
    with pytest.raises(DatabaseUnavailable) as caught:
        await (in_one(single, (ADD, "acme")) if in_transaction else single.fetch(ADD, "acme"))
    assert cause(caught).sqlstate == "25006"
    await single.fetch(ADD, "acme")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "CONNECT_TIMEOUT", 0.2)
    monkeypatch.setattr(database_module, "COMMAND_TIMEOUT", 0.2)


@pytest.mark.usefixtures("impatient")
async def test_a_network_that_carries_nothing_is_unavailable_and_not_waited_for(
    postgres: Postgres, database_url: str
) -> None:
    async with TcpProxy("127.0.0.1", postgres.port) as proxy:
        url = database_url.replace(str(postgres.port), str(proxy.port))
        async with Database(url, name="test", size=1) as database:
            await eventually(lambda: answers(database))
            proxy.become_black_hole()
            for _ in range(2):  # on the connection that it has, and on a new one
                with pytest.raises(DatabaseUnavailable):
                    await database.fetch("SELECT 1")
            proxy.heal()
            await eventually(lambda: answers(database))


async def test_when_all_connections_are_taken_it_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, single: Database
) -> None:
    async with single.transaction():
        monkeypatch.setattr(database_module, "CONNECT_TIMEOUT", 0.05)
        with pytest.raises(DatabaseUnavailable):
            await single.fetch("SELECT 1")
    monkeypatch.undo()
    assert await answers(single)


async def test_a_connection_is_given_back_without_an_open_transaction(
    single: Database, other: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await single.fetch("BEGIN")
    await single.fetch(ADD, "acme")
    assert await tenants(other) == ["acme", "default"]


async def test_a_caller_that_is_cancelled_in_its_transaction_leaves_nothing(single: Database) -> None:
    inside = asyncio.Event()

    async def work() -> None:
        async with single.transaction() as transaction:
            await transaction.fetch(ADD, "acme")
            inside.set()
            await transaction.fetch("SELECT pg_sleep(600)")

    working = asyncio.create_task(work())
    await inside.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert await tenants(single) == ["default"]


def test_statements_are_the_files_of_a_package_by_name() -> None:
    assert Statements("shared")["read_schema_version"].startswith("-- read_schema_version: ")


def test_a_statement_without_a_file_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        Statements("shared")["nothing"]


@pytest.mark.parametrize(
    ("rows", "arrays"), [([(1, "a"), (2, "b")], [[1, 2], ["a", "b"]]), ([(1, "a")], [[1], ["a"]]), ([], [[], []])]
)
def test_rows_are_turned_into_one_array_per_column(rows: list[tuple[int, str]], arrays: list[list[object]]) -> None:
    assert columns(rows, 2) == arrays


def test_rows_of_different_lengths_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="argument 2"):
        columns([(1, 2), (1,)], 2)
