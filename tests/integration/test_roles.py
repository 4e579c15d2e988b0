"""Each service's login can run its statements, and can do nothing else."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import asyncpg
import pytest

from sandbox.postgres import Postgres
from shared.migrations import migrate
from shared.roles import SERVICES, TABLES, create_roles
from tests.conftest import MakeDatabase, login
from tests.databases import LOGINS
from tests.notifications import Notifications

CHECKOUT = Path(__file__).resolve().parents[2]
on_every_server = pytest.mark.parametrize("database_url", ["postgres", "postgres_15"], indirect=True)
each_service = pytest.mark.parametrize("service", SERVICES)

STATEMENTS = [
    pytest.param(service, file.read_text("utf-8"), id=f"{service}-{file.stem}")
    for service in SERVICES
    for folder in (f"services/{service}/sql", "shared/sql")
    for file in sorted((CHECKOUT / folder).glob("*.sql"))
] + [
    pytest.param("worker", file.read_text("utf-8"), id=f"worker-{file.stem}")
    for pattern in ("shared/removal/sql/remove_*.sql", "shared/mending/sql/*.sql")
    for file in sorted(CHECKOUT.glob(pattern))
]


@asynccontextmanager
async def connected(url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture(scope="module")
def url(postgres: Postgres) -> Iterator[str]:
    """One database for all that change nothing."""

    async def make() -> str:
        async with connected(postgres.url) as owner:
            await owner.execute("CREATE DATABASE roles")
        url = postgres.url_of("roles")
        await migrate(url)
        await create_roles(url, LOGINS, dict.fromkeys(SERVICES, LOGINS))
        return url

    async def drop() -> None:
        async with connected(postgres.url) as owner:
            await owner.execute("DROP DATABASE roles WITH (FORCE)")

    yield asyncio.run(make())
    asyncio.run(drop())


@pytest.mark.parametrize(("service", "statement"), STATEMENTS)
async def test_a_service_may_run_each_of_its_statements(url: str, service: str, statement: str) -> None:
    async with connected(login(url, service)) as connection:
        await connection.execute(f"EXPLAIN (GENERIC_PLAN) {statement}")


# What would hurt most, service by service.
FORBIDDEN: Mapping[str, list[str]] = {
    "scheduler": [
        "UPDATE notifyqueue.tenants SET accept_rate = NULL, accept_burst = NULL",
        "DELETE FROM notifyqueue.accept_buckets",
        "DELETE FROM notifyqueue.templates",
        "UPDATE notifyqueue.template_versions SET variants = '{}'",
        "SELECT content FROM notifyqueue.notification_contents",
        "UPDATE notifyqueue.notification_contents SET content = '{}'",
        "UPDATE notifyqueue.tenants SET horizon = '1 day'",
        "INSERT INTO notifyqueue.tenants (id) VALUES ('acme')",
        "UPDATE notifyqueue.notification_history SET note = ''",
        "SELECT sealed_secret FROM notifyqueue.webhook_endpoints",
        "SELECT labels FROM notifyqueue.webhook_events",
        "SELECT body FROM notifyqueue.webhook_events",
        "UPDATE notifyqueue.webhook_events SET fanned_out_at = now()",
        "UPDATE notifyqueue.webhook_deliveries SET delivered_at = now()",
        "DELETE FROM notifyqueue.notifications",
        "DELETE FROM notifyqueue.webhook_events",
    ],
    "worker": [
        "DELETE FROM notifyqueue.suppressions",
        "INSERT INTO notifyqueue.suppressions (created_by) VALUES ('key:0123456789ab')",
        "INSERT INTO notifyqueue.notifications (tenant_id) VALUES ('default')",
        "UPDATE notifyqueue.notification_contents SET content = '{}'",
        "INSERT INTO notifyqueue.notification_contents VALUES (gen_random_uuid(), '{}')",
        "SELECT region FROM notifyqueue.tenants",
        "SELECT variants FROM notifyqueue.template_versions",
        "SELECT labels FROM notifyqueue.webhook_events",
        "UPDATE notifyqueue.webhook_events SET fanned_out_at = now()",
        "SELECT sealed_secret FROM notifyqueue.webhook_endpoints",
        "SELECT endpoint_id FROM notifyqueue.webhook_deliveries",
        "UPDATE notifyqueue.webhook_deliveries SET delivered_at = now()",
    ],
    "dispatcher": [
        "SELECT id FROM notifyqueue.notifications",
        "UPDATE notifyqueue.notifications SET status = 'SENT'",
        "SELECT content FROM notifyqueue.notification_contents",
        "SELECT note FROM notifyqueue.notification_history",
        "INSERT INTO notifyqueue.webhook_events (tenant_id) VALUES ('default')",
        "DELETE FROM notifyqueue.webhook_events",
        "SELECT accept_rate FROM notifyqueue.tenants",
        "SELECT variants FROM notifyqueue.template_versions",
    ],
}
FORBIDDEN_TO_ALL = [
    "UPDATE notifyqueue.suppressions SET category = 'x'",
    "DELETE FROM notifyqueue.webhook_endpoints",
    "TRUNCATE notifyqueue.notification_history",
    "DROP TABLE notifyqueue.notifications",
    "ALTER TABLE notifyqueue.notifications DISABLE TRIGGER write_events",
    "ALTER FUNCTION notifyqueue.write_events() VOLATILE",
    "CREATE TABLE notifyqueue.mine (id int)",
    "CREATE TABLE public.mine (id int)",
    "CREATE SCHEMA mine",
    "INSERT INTO notifyqueue.schema_migrations VALUES (9999, '', '')",
    "INSERT INTO notifyqueue.api_keys (id, role, secret_hash) VALUES ('0123456789ab', 'PLATFORM', '')",
    "UPDATE notifyqueue.api_keys SET revoked_at = NULL",
    "CREATE ROLE another",
    "SET ROLE postgres",
    "SELECT rolpassword FROM pg_authid",
    "COPY (SELECT 1) TO PROGRAM 'true'",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'postgres' AND pid <> pg_backend_pid()",
]


@pytest.mark.parametrize(
    ("service", "statement"),
    [(service, statement) for service in SERVICES for statement in [*FORBIDDEN[service], *FORBIDDEN_TO_ALL]],
)
async def test_a_service_may_not(url: str, service: str, statement: str) -> None:
    async with connected(url), connected(login(url, service)) as connection:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(statement)


WRITTEN_DOWN = [
    (service, table, privilege, set(filter(None, columns.split(", "))))
    for table, services in TABLES.items()
    for service, privileges in services.items()
    for privilege, columns in re.findall(r"([A-Z]+)(?: \(([^)]*)\))?", privileges)
]


@on_every_server
@each_service
async def test_a_service_has_the_privileges_that_are_written_down_and_no_more(database_url: str, service: str) -> None:
    async with connected(database_url) as owner:
        columns = await owner.fetch(
            """
            SELECT c.relname AS table, a.attname AS column, p.privilege,
              has_column_privilege($1, c.oid, a.attnum, p.privilege) AS held
            FROM pg_class AS c
            JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0
            CROSS JOIN unnest('{SELECT,INSERT,UPDATE,REFERENCES}'::text[]) AS p (privilege)
            WHERE c.relnamespace = 'notifyqueue'::regnamespace AND c.relkind = 'r'
            """,
            name_of(login(database_url, service)),
        )
    held = {(row["table"], row["privilege"], row["column"]) for row in columns if row["held"]}
    assert held == {
        (row["table"], row["privilege"], row["column"])
        for row in columns
        for whose, table, privilege, chosen in WRITTEN_DOWN
        if (whose, table, privilege) == (service, row["table"], row["privilege"])
        if not chosen or row["column"] in chosen
    }


@on_every_server
@each_service
async def test_a_service_deletes_what_is_written_down_and_owns_nothing(database_url: str, service: str) -> None:
    async with connected(database_url) as owner:
        found = await owner.fetch(
            """
            SELECT c.relname, has_table_privilege($1, c.oid, 'DELETE') AS deletes,
              has_table_privilege($1, c.oid, 'TRUNCATE, TRIGGER') OR pg_has_role($1, c.relowner, 'MEMBER') AS owns
            FROM pg_class AS c
            WHERE c.relnamespace = 'notifyqueue'::regnamespace AND c.relkind IN ('r', 'S')
            """,
            name_of(login(database_url, service)),
        )
    assert [row["relname"] for row in found if row["owns"]] == []
    assert {row["relname"] for row in found if row["deletes"]} == {
        table for whose, table, privilege, _ in WRITTEN_DOWN if (whose, privilege) == (service, "DELETE")
    }


@each_service
async def test_a_login_is_nothing_special(url: str, service: str) -> None:
    async with connected(url) as owner:
        row = await owner.fetchrow(
            """
            SELECT rolcanlogin, rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls AS special
            FROM pg_roles WHERE rolname = $1
            """,
            name_of(login(url, service)),
        )
    assert row
    assert row["rolcanlogin"]
    assert not row["special"]


@each_service
@pytest.mark.parametrize(
    ("setting", "value"),
    [("statement_timeout", "10s"), ("lock_timeout", "1s"), ("idle_in_transaction_session_timeout", "10s")],
)
async def test_nothing_that_a_service_does_hangs_for_ever(url: str, service: str, setting: str, value: str) -> None:
    async with connected(login(url, service)) as connection:
        assert await connection.fetchval(f"SHOW {setting}") == value


@each_service
async def test_every_service_plans_for_what_is_asked_and_for_the_tables_as_they_are(url: str, service: str) -> None:
    async with connected(login(url, service)) as connection:
        assert await connection.fetchval("SHOW plan_cache_mode") == "force_custom_plan"


async def test_whoever_ends_a_notification_writes_its_event_without_reading_any(
    database_url: str, notifications: Notifications
) -> None:
    ids = await notifications.insert_many(2)
    ends = {"scheduler": ids[0], "worker": ids[1]}
    for service, id_ in ends.items():
        async with connected(login(database_url, service)) as connection:
            await connection.execute(
                "UPDATE notifyqueue.notifications SET status = 'CANCELLED', finished_at = now() WHERE id = $1", id_
            )
    assert [await notifications.events(id_) for id_ in ids] == [["CANCELLED"], ["CANCELLED"]]


Make = Callable[..., Awaitable[dict[str, str]]]


@pytest.fixture
async def make_roles(postgres: Postgres) -> AsyncIterator[Make]:
    """Makes roles that go when the test ends; with one password for all."""
    made: list[tuple[str, str]] = []

    async def make(url: str, prefix: str, password: str = "guess me") -> dict[str, str]:
        names = await create_roles(url, prefix, dict.fromkeys(SERVICES, password))
        made.extend((url, name) for name in names.values())
        return names

    yield make
    for url, name in made:
        async with connected(url) as owner:
            quoted = await owner.fetchval("SELECT quote_ident($1)", name)
            await owner.execute(f"DROP OWNED BY {quoted}; DROP ROLE {quoted}")


def as_role(url: str, name: str, password: str = "guess me") -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{quote(name, safe='')}:{quote(password, safe='')}@{host}"))


async def may_read_tenants(url: str) -> bool:
    async with connected(url) as connection:
        try:
            return bool(await connection.fetch("SELECT id FROM notifyqueue.tenants"))
        except asyncpg.InsufficientPrivilegeError:
            return False


async def test_roles_are_named_after_their_services(database_url: str, make_roles: Make) -> None:
    assert await make_roles(database_url, "first") == {service: f"first_{service}" for service in SERVICES}


async def test_a_second_run_sets_the_passwords_and_grants_anew(database_url: str, make_roles: Make) -> None:
    names = await create_roles(database_url, "second", dict.fromkeys(SERVICES, "before"))
    async with connected(database_url) as owner:
        await owner.execute(f"GRANT SELECT ON notifyqueue.notification_contents TO {names['scheduler']}")
        await owner.execute(f"REVOKE SELECT ON notifyqueue.tenants FROM {names['scheduler']}")
    await make_roles(database_url, "second", "after")
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(as_role(database_url, names["scheduler"], "before"))
    url = as_role(database_url, names["scheduler"], "after")
    assert await may_read_tenants(url)
    async with connected(url) as connection:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch("SELECT content FROM notifyqueue.notification_contents")


async def test_two_installations_on_one_server_do_not_meet(make_database: MakeDatabase, make_roles: Make) -> None:
    urls = {prefix: await make_database() for prefix in ("left", "right")}
    names = {prefix: (await make_roles(url, prefix))["scheduler"] for prefix, url in urls.items()}
    for prefix, url in urls.items():
        for whose, name in names.items():
            assert await may_read_tenants(as_role(url, name)) == (whose == prefix)


async def test_names_and_passwords_are_quoted(database_url: str, make_roles: Make) -> None:
    prefix, password = """O'Brien "; DROP""", """it's \\ "; $1 %I"""
    names = await make_roles(database_url, prefix, password)
    assert await may_read_tenants(as_role(database_url, names["scheduler"], password))


@on_every_server
@pytest.mark.parametrize("password", ["guess me", "pässwört ½\u00a0\u00ad€", "x" * 200])
async def test_a_login_works_with_its_password_and_no_other(database_url: str, make_roles: Make, password: str) -> None:
    name = (await make_roles(database_url, "third", password))["scheduler"]
    assert await may_read_tenants(as_role(database_url, name, password))
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(as_role(database_url, name, f"{password}!"))


async def test_no_password_is_in_the_log_of_a_server_that_logs_all_statements(
    postgres: Postgres, database_url: str, make_roles: Make
) -> None:
    name = urlsplit(database_url).path[1:]
    async with connected(postgres.url) as owner:
        await owner.execute(f"ALTER DATABASE {name} SET log_statement = 'all'")
    await make_roles(database_url, "fourth", "hunter2-in-the-clear")
    await create_roles(database_url, "fourth", dict.fromkeys(SERVICES, "hunter2-in-the-clear"))
    log = postgres.data.with_name(f"{postgres.data.name}.log").read_text(errors="replace")
    assert 'ROLE "fourth_scheduler"' in log or "ROLE fourth_scheduler" in log
    assert "hunter2-in-the-clear" not in log


async def test_a_run_that_fails_leaves_no_role(postgres: Postgres) -> None:
    with pytest.raises(asyncpg.PostgresError):
        await create_roles(postgres.url, "nowhere", dict.fromkeys(SERVICES, "guess me"))  # it has no schema
    async with connected(postgres.url) as owner:
        assert await owner.fetch("SELECT FROM pg_roles WHERE rolname LIKE 'nowhere%'") == []


def name_of(url: str) -> str:
    name = urlsplit(url).username
    assert name
    return name
