"""Whether a process should be called, as its probes say, while its database comes and goes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import asyncpg
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from structlog.testing import capture_logs
from structlog.typing import EventDict

from sandbox.postgres import Postgres
from shared import database as database_module
from shared import readiness as readiness_module
from shared.database import Database
from shared.errors import DatabaseUnavailable
from shared.migrations import latest_version, migrate
from shared.readiness import Readiness, SchemaVersion
from shared.server import Health, HealthServer
from shared.store import Store
from tests.conftest import login
from tests.integration.tcp_proxy import TcpProxy
from tests.waiting import eventually

NAME = "test.v1.Probe"
LATEST = latest_version()

Status = Callable[[str], Awaitable[str]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness_module, "PING_INTERVAL", 0.01)
    monkeypatch.setattr(readiness_module, "PING_TIMEOUT", 5.0)


@pytest.fixture
async def health() -> AsyncIterator[Health]:
    async with Health([NAME]) as health:
        yield health


@pytest.fixture
async def status(health: Health) -> AsyncIterator[Status]:
    """What a probe is told."""
    async with HealthServer("127.0.0.1:0", health) as server, connected(server.port) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)

        async def ask(service: str) -> str:
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
            return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))

        yield ask


def connected(port: int) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(f"127.0.0.1:{port}")


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with Database(login(database_url, "worker"), name="test") as database:
        yield database


@pytest.fixture
def lines() -> Iterator[list[EventDict]]:
    with capture_logs() as lines:
        yield lines


STOP = "stop"


class Scripted:
    """Answers as told, the last answer for ever, and counts how often it was asked."""

    def __init__(self, *answers: int | Exception | str) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.go_on = asyncio.Event()

    async def read_schema_version(self) -> int:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, str):
            await self.go_on.wait()
            raise DatabaseUnavailable
        if isinstance(answer, Exception):
            raise answer
        return answer


class Silent:
    """Never answers."""

    asked = 0

    async def read_schema_version(self) -> int:
        self.asked += 1
        await asyncio.Event().wait()
        raise AssertionError


def readiness(
    store: SchemaVersion,
    health: Health,
    *,
    version: int = LATEST,
    draining: Callable[[], bool] = lambda: False,
    delay: float = 0,
) -> Readiness:
    return Readiness(store, health, schema_version=version, draining=draining, delay=delay)


def events(lines: list[EventDict]) -> list[str]:
    return [line["event"] for line in lines]


async def is_ready(status: Status) -> bool:
    return await status(NAME) == "SERVING"


async def is_not_ready(status: Status) -> bool:
    return not await is_ready(status)


async def test_it_is_not_ready_before_the_database_has_answered(health: Health, status: Status) -> None:
    silent = Silent()
    async with readiness(silent, health):
        await eventually(lambda: silent.asked > 0)
        assert await status(NAME) == "NOT_SERVING"
        assert await status("") == "SERVING"


async def test_it_is_ready_when_the_database_has_the_schema_of_this_version(
    database: Database, health: Health, status: Status
) -> None:
    async with readiness(Store(database), health):
        await eventually(lambda: is_ready(status))
        assert await status("") == "SERVING"


async def test_a_newer_schema_is_fine(health: Health, status: Status) -> None:
    async with readiness(Scripted(LATEST + 1), health):
        await eventually(lambda: is_ready(status))


@pytest.mark.parametrize("failure", [DatabaseUnavailable(), TimeoutError()])
async def test_two_failures_in_a_row_change_nothing(
    health: Health, status: Status, lines: list[EventDict], failure: Exception
) -> None:
    scripted = Scripted(LATEST, failure, failure, LATEST, failure, failure, LATEST)
    async with readiness(scripted, health):
        await eventually(lambda: scripted.asked > 7)
        assert await is_ready(status)
        assert events(lines) == ["process.ready"]


async def test_three_failures_in_a_row_make_it_not_ready(health: Health, status: Status) -> None:
    failures = [DatabaseUnavailable() for _ in range(3)]
    scripted = Scripted(LATEST, *failures, STOP)
    async with readiness(scripted, health):
        await eventually(lambda: scripted.asked == 5)
        assert await status(NAME) == "NOT_SERVING"
        assert await status("") == "SERVING"
        scripted.go_on.set()


async def test_failures_before_the_first_answer_do_not_make_it_ready(
    health: Health, status: Status, lines: list[EventDict]
) -> None:
    scripted = Scripted(DatabaseUnavailable(), STOP)
    async with readiness(scripted, health):
        await eventually(lambda: scripted.asked == 2)
        assert await status(NAME) == "NOT_SERVING"
        scripted.go_on.set()
    assert events(lines) == []


async def test_a_database_that_does_not_answer_in_time_has_failed(
    health: Health, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness_module, "PING_TIMEOUT", 0.01)
    silent = Silent()
    async with readiness(silent, health):
        await eventually(lambda: silent.asked > 3)
        assert await is_not_ready(status)


async def test_while_the_server_is_away_it_is_not_ready_and_alive_and_then_ready_by_itself(
    postgres: Postgres, database: Database, health: Health, status: Status, lines: list[EventDict]
) -> None:
    async with readiness(Store(database), health):
        await eventually(lambda: is_ready(status))
        postgres.stop()
        try:
            await eventually(lambda: is_not_ready(status))
            assert await status("") == "SERVING"
        finally:
            postgres.start()
        await eventually(lambda: is_ready(status))
    assert events(lines) == ["process.ready", "process.not_ready", "process.ready"]


async def test_a_network_that_carries_nothing_makes_it_not_ready(
    postgres: Postgres, database_url: str, health: Health, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness_module, "PING_TIMEOUT", 0.2)
    monkeypatch.setattr(database_module, "CONNECT_TIMEOUT", 0.2)
    async with TcpProxy("127.0.0.1", postgres.port) as proxy:
        url = database_url.replace(str(postgres.port), str(proxy.port))
        async with Database(url, name="test") as database, readiness(Store(database), health):
            await eventually(lambda: is_ready(status))
            proxy.become_black_hole()
            await eventually(lambda: is_not_ready(status))
            proxy.heal()
            await eventually(lambda: is_ready(status))


async def test_an_older_schema_is_alive_and_not_ready_and_one_clear_line(
    database: Database, database_url: str, health: Health, status: Status, lines: list[EventDict]
) -> None:
    store = Counted(Store(database))
    async with readiness(store, health, version=LATEST + 1):
        await eventually(lambda: store.asked > 5)
        assert await status(NAME) == "NOT_SERVING"
        assert await status("") == "SERVING"
        (line,) = lines
        assert (line["event"], line["log_level"]) == ("schema.outdated", "error")
        assert (line["found"], line["expected"]) == (LATEST, LATEST + 1)
        await execute(database_url, f"INSERT INTO notifyqueue.schema_migrations VALUES ({LATEST + 1}, 'next', '')")
        await eventually(lambda: is_ready(status))


class Counted:
    """A store, and how often it was asked."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked = 0

    async def read_schema_version(self) -> int:
        self.asked += 1
        return await self._store.read_schema_version()


async def execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture
async def empty_url(postgres: Postgres) -> AsyncIterator[str]:
    """A database that was never migrated."""
    await execute(postgres.url, "CREATE DATABASE unmigrated")
    yield postgres.url_of("unmigrated")
    await execute(postgres.url, "DROP DATABASE unmigrated WITH (FORCE)")


async def test_a_database_that_was_never_migrated_is_one_clear_line_and_then_ready(
    empty_url: str, health: Health, status: Status, lines: list[EventDict]
) -> None:
    async with Database(empty_url, name="test") as database:
        store = Counted(Store(database))
        async with readiness(store, health):
            await eventually(lambda: store.asked > 5)
            assert await status(NAME) == "NOT_SERVING"
            assert await status("") == "SERVING"
            (line,) = lines
            assert (line["event"], line["found"], line["expected"]) == ("schema.outdated", 0, LATEST)
            await migrate(empty_url)
            await eventually(lambda: is_ready(status))


async def test_a_schema_that_is_taken_away_makes_it_not_ready(
    database: Database, database_url: str, health: Health, status: Status
) -> None:
    async with readiness(Store(database), health):
        await eventually(lambda: is_ready(status))
        await execute(database_url, "ALTER TABLE notifyqueue.schema_migrations RENAME TO elsewhere")
        await eventually(lambda: is_not_ready(status))
        await execute(database_url, "ALTER TABLE notifyqueue.elsewhere RENAME TO schema_migrations")
        await eventually(lambda: is_ready(status))


async def test_a_process_that_drains_is_not_ready(health: Health, status: Status) -> None:
    draining = False
    async with readiness(Scripted(LATEST), health, draining=lambda: draining):
        await eventually(lambda: is_ready(status))
        draining = True
        await eventually(lambda: is_not_ready(status))
        draining = False
        await eventually(lambda: is_ready(status))


async def test_leaving_is_not_ready_first_and_then_gives_time_to_notice(health: Health, status: Status) -> None:
    entered = await readiness(Scripted(LATEST), health, delay=3600).__aenter__()
    await eventually(lambda: is_ready(status))
    leaving = asyncio.create_task(entered.__aexit__())
    await eventually(lambda: is_not_ready(status))
    assert await status("") == "SERVING"
    assert not leaving.done()
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving


async def test_a_change_is_logged_and_nothing_else(health: Health, status: Status, lines: list[EventDict]) -> None:
    scripted = Scripted(LATEST)
    async with readiness(scripted, health):
        await eventually(lambda: scripted.asked > 5)
    assert events(lines) == ["process.ready"]
