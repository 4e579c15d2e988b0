"""Wake-ups between processes: heard while all is well, and found again by themselves when it was not."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from urllib.parse import urlsplit

import asyncpg
import pytest
from structlog.testing import capture_logs

from sandbox.postgres import Postgres
from shared import listener as listener_module
from shared.database import Database
from shared.errors import DatabaseUnavailable
from shared.listener import Listener, Notifier, lane_topic
from shared.store import Store
from tests.integration.tcp_proxy import TcpProxy
from tests.waiting import eventually, settled

NAME = "test listener"
TOPICS = ("notifyqueue_lane_email", "notifyqueue_events")
BACKENDS = "SELECT pid FROM pg_stat_activity WHERE application_name = $1"


class Calls(Counter[str]):
    """How often each topic was called."""

    def on(self, *topics: str) -> dict[str, Callable[[], None]]:
        return {topic: lambda topic=topic: self.update([topic]) for topic in topics}  # type: ignore[misc]

    def each(self, times: int) -> bool:
        return all(self[topic] == times for topic in TOPICS)


@pytest.fixture
async def other(database_url: str) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
    """Somebody else on the same database."""
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "CHECK_INTERVAL", 0.05)
    monkeypatch.setattr(listener_module, "CONNECT_TIMEOUT", 0.3)


async def test_a_wake_up_arrives_where_its_topic_is_listened_to(
    database_url: str, other: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    calls = Calls()
    async with Listener(database_url, name=NAME, on=calls.on(*TOPICS)):
        await eventually(lambda: calls.each(1))
        await other.execute(f"NOTIFY {TOPICS[0]}")
        await other.execute("NOTIFY something_else")
        await eventually(lambda: calls[TOPICS[0]] == 2)
    assert calls[TOPICS[1]] == 1


async def test_everything_is_called_once_when_it_begins_to_listen(database_url: str) -> None:
    calls = Calls()
    async with Listener(database_url, name=NAME, on=calls.on(*TOPICS)) as listener:
        assert not listener.connected
        await eventually(lambda: listener.connected)
        await settled()
        assert calls.each(1)


async def test_it_listens_before_it_calls_so_that_no_wake_up_falls_in_between(
    database_url: str, other: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    calls = Calls()
    looked: list[asyncio.Task[str]] = []

    def look() -> None:
        calls.update(TOPICS[:1])
        if not looked:  # and meanwhile somebody writes, and says so
            looked.append(asyncio.create_task(other.execute(f"NOTIFY {TOPICS[0]}")))

    async with Listener(database_url, name=NAME, on={TOPICS[0]: look}):
        await eventually(lambda: calls[TOPICS[0]] == 2)


async def test_a_terminated_listener_listens_again_at_once_and_calls_everything_once(
    database_url: str, other: "asyncpg.Connection[asyncpg.Record]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "CHECK_INTERVAL", 3600.0)
    calls = Calls()
    async with Listener(database_url, name=NAME, on=calls.on(*TOPICS)):
        await eventually(lambda: calls.each(1))
        await other.execute(f"SELECT pg_terminate_backend(pid) FROM ({BACKENDS.replace('$1', repr(NAME))}) AS own")
        await eventually(lambda: calls.each(2))
        await other.execute(f"NOTIFY {TOPICS[1]}")
        await eventually(lambda: calls[TOPICS[1]] == 3)
    assert calls[TOPICS[0]] == 2


@pytest.mark.usefixtures("impatient")
async def test_a_network_that_carries_nothing_is_noticed_and_everything_is_called_when_it_is_back(
    postgres: Postgres, database_url: str, other: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    calls = Calls()
    async with TcpProxy("127.0.0.1", postgres.port) as proxy:
        url = database_url.replace(str(postgres.port), str(proxy.port))
        with capture_logs() as lines:
            async with Listener(url, name=NAME, on=calls.on(*TOPICS)) as listener:
                await eventually(lambda: listener.connected)
                proxy.become_black_hole()
                await eventually(lambda: not listener.connected)
                proxy.heal()
                await eventually(lambda: listener.connected)
                assert calls.each(2)
                await other.execute(f"NOTIFY {TOPICS[0]}")
                await eventually(lambda: calls[TOPICS[0]] == 3)
    assert {line["event"] for line in lines} == {"listener.lost"}


@pytest.mark.usefixtures("impatient")
async def test_a_quiet_connection_is_kept(database_url: str, other: "asyncpg.Connection[asyncpg.Record]") -> None:
    async with Listener(database_url, name=NAME, on=Calls().on(*TOPICS)) as listener:
        await eventually(lambda: listener.connected)
        before = await other.fetchval(BACKENDS, NAME)
        await eventually(
            lambda: other.fetchval("SELECT query = 'SELECT 1' FROM pg_stat_activity WHERE pid = $1", before)
        )
        await settled()
        assert await other.fetchval(BACKENDS, NAME) == before


async def test_a_server_that_stops_is_noticed_and_listened_to_again(postgres: Postgres, database_url: str) -> None:
    calls = Calls()
    with capture_logs() as lines:
        async with Listener(database_url, name=NAME, on=calls.on(*TOPICS)) as listener:
            await eventually(lambda: listener.connected)
            postgres.stop()
            try:
                await eventually(lambda: any(line["event"] == "listener.lost" for line in lines))
                assert not listener.connected
            finally:
                postgres.start()
            await eventually(lambda: listener.connected)
            assert calls.each(2)


async def test_a_server_that_may_only_be_read_is_not_listened_to(
    database_url: str, other: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    name = urlsplit(database_url).path.removeprefix("/")
    await other.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with capture_logs() as lines:
        async with Listener(database_url, name=NAME, on=Calls().on(*TOPICS)) as listener:
            await eventually(lambda: bool(lines))
            assert not listener.connected
            await other.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
            await eventually(lambda: listener.connected)
    assert {line["event"] for line in lines} == {"listener.lost"}


async def test_leaving_hangs_up(database_url: str, other: "asyncpg.Connection[asyncpg.Record]") -> None:
    async with Listener(database_url, name=NAME, on=Calls().on(*TOPICS)) as listener:
        await eventually(lambda: listener.connected)
    assert not listener.connected
    await eventually(lambda: gone(other))


async def gone(other: "asyncpg.Connection[asyncpg.Record]") -> bool:
    return await other.fetchval(BACKENDS, NAME) is None


def test_each_channel_has_its_topic() -> None:
    assert lane_topic("EMAIL") == "notifyqueue_lane_email"


class Recorded(Store):
    """What would have been sent, and an error instead while there is one."""

    def __init__(self) -> None:
        self.sent: list[list[str]] = []
        self.error: Exception | None = None

    async def notify_topics(self, topics: Sequence[str]) -> None:
        if self.error:
            raise self.error
        self.sent.append(list(topics))


class Quiet:
    """Stands for asyncio in the module: the pause between two tellings ends when the test says so."""

    def __init__(self) -> None:
        self.over = asyncio.Event()

    async def sleep(self, _: float) -> None:
        await self.over.wait()


@pytest.fixture
def store() -> Recorded:
    return Recorded()


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> Quiet:
    quiet = Quiet()
    monkeypatch.setattr(listener_module, "asyncio", quiet)
    return quiet


async def test_the_first_is_told_at_once_and_nothing_before(store: Recorded, quiet: Quiet) -> None:
    async with Notifier(store) as notifier:
        await settled()
        assert store.sent == []
        notifier.tell("a")
        await settled()
        assert store.sent == [["a"]]
        quiet.over.set()


async def test_the_rest_is_merged_into_one_that_follows(store: Recorded, quiet: Quiet) -> None:
    async with Notifier(store) as notifier:
        notifier.tell("a")
        await settled()
        for topic in ("b", "a", "b"):
            notifier.tell(topic)
            await settled()
        assert store.sent == [["a"]]
        quiet.over.set()
        await settled()
        assert store.sent == [["a"], ["a", "b"]]


async def test_what_was_told_is_not_told_again(store: Recorded, quiet: Quiet) -> None:
    quiet.over.set()
    async with Notifier(store) as notifier:
        notifier.tell("a")
        await settled()
        notifier.tell("b")
        await settled()
    assert store.sent == [["a"], ["b"]]


async def test_a_failure_is_only_logged(store: Recorded, quiet: Quiet) -> None:
    quiet.over.set()
    store.error = DatabaseUnavailable()
    with capture_logs() as lines:
        async with Notifier(store) as notifier:
            notifier.tell("a")
            await settled()
            store.error = None
            notifier.tell("b")
            await settled()
    assert [line["event"] for line in lines] == ["notify.failed"]
    assert store.sent == [["b"]]


async def test_what_one_process_tells_another_hears(database_url: str) -> None:
    calls = Calls()
    async with (
        Database(database_url, name="teller") as database,
        Notifier(Store(database)) as notifier,
        Listener(database_url, name=NAME, on=calls.on(*TOPICS)),
    ):
        await eventually(lambda: calls.each(1))
        for topic in TOPICS:
            notifier.tell(topic)
        await eventually(lambda: calls.each(2))
