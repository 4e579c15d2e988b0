"""The schema is brought up to date once, whoever does it how often, on every server that is supported."""

import asyncio
from collections.abc import AsyncIterator
from uuid import RFC_4122, UUID

import asyncpg
import pytest

from sandbox.postgres import Postgres
from shared.migrations import Migration, MigrationError, latest_version, migrate, migrations
from tests.conftest import MakeDatabase

SERVERS = ["postgres", "postgres_15"]
on_every_server = pytest.mark.parametrize("database_url", SERVERS, indirect=True)

TABLES = {
    "accept_buckets",
    "api_keys",
    "lane_history",
    "lanes",
    "notification_contents",
    "notification_history",
    "notifications",
    "recipient_gates",
    "recipient_reservations",
    "retention_marks",
    "status_deltas",
    "status_totals",
    "schema_migrations",
    "subscribers",
    "suppressions",
    "template_versions",
    "templates",
    "tenants",
    "webhook_attempts",
    "webhook_deliveries",
    "webhook_endpoints",
    "webhook_events",
    "workers",
}


@pytest.fixture
async def connection(database_url: str) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


@pytest.fixture(params=SERVERS)
async def empty_url(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A database without a schema, on every server that is supported."""
    server: Postgres = request.getfixturevalue(request.param)
    owner = await asyncpg.connect(server.url)
    await owner.execute("CREATE DATABASE empty")
    yield server.url_of("empty")
    await owner.execute("DROP DATABASE empty WITH (FORCE)")
    await owner.close()


async def ask(url: str, query: str) -> "list[asyncpg.Record]":
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetch(query)
    finally:
        await connection.close()


async def test_an_empty_database_gets_everything(empty_url: str) -> None:
    assert await migrate(empty_url) == migrations()
    rows = await ask(empty_url, "SELECT version, name, checksum FROM notifyqueue.schema_migrations ORDER BY version")
    assert [tuple(row.values()) for row in rows] == [(each.version, each.name, each.checksum) for each in migrations()]


async def test_a_second_time_there_is_nothing_to_do(empty_url: str) -> None:
    await migrate(empty_url)
    before = await ask(empty_url, "SELECT * FROM notifyqueue.schema_migrations")
    assert await migrate(empty_url) == []
    assert await ask(empty_url, "SELECT * FROM notifyqueue.schema_migrations") == before


async def test_several_at_once_take_turns(empty_url: str) -> None:
    answers = await asyncio.gather(*(migrate(empty_url) for _ in range(4)))
    assert sorted(answers, key=len) == [[], [], [], migrations()]


async def test_a_migration_that_fails_leaves_nothing(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = [*migrations(), Migration(9999, "broken", "CREATE TABLE notifyqueue.half (id int); SELEC")]
    monkeypatch.setattr("shared.migrations.migrations", lambda: broken)
    with pytest.raises(asyncpg.PostgresSyntaxError):
        await migrate(empty_url)
    monkeypatch.undo()
    assert await ask(empty_url, "SELECT FROM pg_namespace WHERE nspname = 'notifyqueue'") == []
    assert await migrate(empty_url) == migrations()


@on_every_server
async def test_a_newer_schema_is_left_alone(
    connection: "asyncpg.Connection[asyncpg.Record]", database_url: str
) -> None:
    await connection.execute("INSERT INTO notifyqueue.schema_migrations VALUES (9999, 'later', '')")
    with pytest.raises(MigrationError, match="9999"):
        await migrate(database_url)


@on_every_server
async def test_the_schema_is_complete(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    rows = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'notifyqueue'")
    assert {row["tablename"] for row in rows} == TABLES
    assert await connection.fetchval("SELECT max(version) FROM notifyqueue.schema_migrations") == latest_version()
    assert await connection.fetchval("SELECT array_agg(id) FROM notifyqueue.tenants") == ["default"]


# What a schema is, without what PostgreSQL 18 stores otherwise (it has rows for NOT NULL).
DESCRIPTIONS = {
    "columns": """
        SELECT table_name, ordinal_position, column_name, data_type, collation_name, is_nullable, column_default,
          is_identity
        FROM information_schema.columns WHERE table_schema = 'notifyqueue' ORDER BY 1, 2
    """,
    "indexes": "SELECT indexdef FROM pg_indexes WHERE schemaname = 'notifyqueue' ORDER BY 1",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'notifyqueue'::regnamespace AND contype <> 'n' ORDER BY 1, 2
    """,
    "triggers": """
        SELECT tgrelid::regclass::text, tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1
    """,
    "functions": """
        SELECT proname, provolatile, proparallel, prorettype::regtype::text FROM pg_proc
        WHERE pronamespace = 'notifyqueue'::regnamespace ORDER BY 1
    """,
    "storage": """
        SELECT relname, reloptions FROM pg_class
        WHERE relnamespace = 'notifyqueue'::regnamespace AND relkind = 'r' ORDER BY 1
    """,
}


@pytest.mark.parametrize("description", DESCRIPTIONS.values(), ids=DESCRIPTIONS)
async def test_both_servers_have_the_same_schema(
    postgres: Postgres, postgres_15: Postgres, make_database: MakeDatabase, description: str
) -> None:
    newer = await ask(await make_database(postgres), description)
    assert newer
    assert newer == await ask(await make_database(postgres_15), description)


@on_every_server
async def test_every_text_that_is_a_key_sorts_by_its_bytes(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    rows = await connection.fetch("""
        SELECT DISTINCT c.table_name, c.column_name, c.collation_name
        FROM pg_index AS i, unnest(i.indkey) AS key (number), information_schema.columns AS c
        WHERE c.table_schema = 'notifyqueue' AND c.data_type = 'text' AND i.indrelid =
          format('notifyqueue.%I', c.table_name)::regclass AND key.number = c.ordinal_position
    """)
    assert rows
    assert {row["collation_name"] for row in rows} == {"C"}


async def new_ids(connection: "asyncpg.Connection[asyncpg.Record]", count: int) -> list[UUID]:
    rows = await connection.fetch("SELECT notifyqueue.new_id() AS id FROM generate_series(1, $1)", count)
    return [UUID(int=row["id"].int) for row in rows]


def microseconds(id_: UUID) -> float:
    """The time in an id, since 1970: 48 bits of milliseconds and 12 of their fraction."""
    fraction = id_.int >> 64 & 0xFFF
    return (id_.int >> 80) * 1000 + fraction * 1000 / 4096


@on_every_server
async def test_an_id_is_a_uuid_of_version_7(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    for id_ in await new_ids(connection, 1_000):
        assert id_.version == 7
        assert id_.variant == RFC_4122


@on_every_server
async def test_ids_are_distinct(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    assert len(set(await new_ids(connection, 10_000))) == 10_000


@on_every_server
async def test_ids_of_one_statement_do_not_go_back_in_time(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    times = [microseconds(id_) for id_ in await new_ids(connection, 10_000)]
    assert times == sorted(times)


@on_every_server
async def test_ids_of_one_statement_after_another_ascend(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    ids = [id_ for _ in range(300) for id_ in await new_ids(connection, 1)]
    assert ids == sorted(ids)


@on_every_server
async def test_an_id_carries_the_databases_time(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    row = await connection.fetchrow("""
        SELECT extract(epoch FROM clock_timestamp()) * 1000000 AS before, notifyqueue.new_id() AS id
    """)
    after = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp()) * 1000000")
    assert row
    rounding = 1
    assert float(row["before"]) - rounding <= microseconds(row["id"]) <= float(after) + rounding


async def test_one_that_waits_for_a_table_gives_up_before_everybody_waits_behind_it(
    database_url: str, connection: "asyncpg.Connection[asyncpg.Record]", monkeypatch: pytest.MonkeyPatch
) -> None:
    more = Migration(latest_version() + 1, "more", "ALTER TABLE notifyqueue.notifications ADD COLUMN more text")
    monkeypatch.setattr("shared.migrations.migrations", lambda: [*migrations(), more])
    monkeypatch.setattr("shared.migrations.PATIENCE", "50ms")
    async with connection.transaction():
        await connection.execute("SELECT FROM notifyqueue.notifications")  # as a backup does, for hours
        with pytest.raises(MigrationError, match="a table was in use for more than 50ms; nothing was changed"):
            await migrate(database_url)
    assert await migrate(database_url) == [more]
