"""Wake-ups between processes: NOTIFY on one side, LISTEN on the other. A hint, never a message: polling finds all.

A NOTIFY at commit takes a lock of the whole database, so it is never sent inside a transaction that writes, and at
most once per topic in `QUIET` seconds: the first at once, the rest merged into one that follows.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Self

import asyncpg
import structlog
from asyncpg.connect_utils import SessionAttribute

from shared.database import CONNECT_TIMEOUT
from shared.errors import DatabaseUnavailable
from shared.loop import Loop
from shared.store import Store

log = structlog.get_logger()

QUIET = 0.05
CHECK_INTERVAL = 5.0
# How often to look, at least, while no wake-up would be heard.
UNHEARD_POLL = 1.0

# asyncpg's last one is also the answer of a server that may only be read.
FAULTS = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


def lane_topic(channel: str) -> str:
    """What is told when something on this channel became due sooner."""
    return f"notifyqueue_lane_{channel.lower()}"


LANES_TOPIC = "notifyqueue_lanes"
"""What is told when a lane was paused or resumed, held, given up, or goes on."""

EVENTS_TOPIC = "notifyqueue_events"
ENDPOINTS_TOPIC = "notifyqueue_endpoints"


class Notifier:
    """Tells the other processes, after the commit, that there is something to do."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pending: set[str] = set()
        self._loop = Loop("notifier", self._send)

    async def __aenter__(self) -> Self:
        await self._loop.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._loop.__aexit__()

    def tell(self, topic: str) -> None:
        """Soon, and once for all calls until then."""
        self._pending.add(topic)
        self._loop.wake()

    def tell_due(self, channel: str) -> None:
        self.tell(lane_topic(channel))

    def tell_end(self) -> None:
        self.tell(EVENTS_TOPIC)

    def tell_lanes(self) -> None:
        self.tell(LANES_TOPIC)

    async def _send(self) -> float | None:
        topics, self._pending = sorted(self._pending), set()
        if not topics:
            return None
        try:
            await self._store.notify_topics(topics)
        except DatabaseUnavailable:
            log.warning("notify.failed")  # whoever was to be woken polls
        await asyncio.sleep(QUIET)
        return 0 if self._pending else None


class Listener:
    """Hears the other processes. Not for a pooler in transaction mode: LISTEN belongs to a session."""

    def __init__(self, url: str, *, name: str, on: Mapping[str, Callable[[], None]]) -> None:
        """`on` has what to call for each topic; all are called after every reconnect, for what was missed meanwhile."""
        self._url = url
        self._name = name
        self._on = on
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._loop = Loop("listener", self._keep_listening)

    async def __aenter__(self) -> Self:
        await self._loop.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._loop.__aexit__()
        if self._connection:
            self._connection.terminate()

    @property
    def connected(self) -> bool:
        """Whether a wake-up would be heard. Where not, poll more often."""
        return self._connection is not None and not self._connection.is_closed()

    async def _keep_listening(self) -> float:
        try:
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._connect()
            else:  # one that the network forgot looks like a quiet one
                await self._connection.fetchval("SELECT 1")
        except FAULTS as error:
            log.warning("listener.lost", exc_info=error)
            self._hang_up()
            return 1.0
        return CHECK_INTERVAL

    async def _connect(self) -> "asyncpg.Connection[asyncpg.Record]":
        connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(
            self._url,
            timeout=CONNECT_TIMEOUT,
            command_timeout=CONNECT_TIMEOUT,
            target_session_attrs=SessionAttribute.read_write,
            server_settings={"application_name": self._name},
        )
        connection.add_termination_listener(lambda _: self._loop.wake())
        try:
            for topic in self._on:
                await connection.add_listener(topic, self._heard)
        except BaseException:
            connection.terminate()
            raise
        for call in self._on.values():  # LISTEN, then look: in the other order a wake-up falls in between
            call()
        return connection

    def _hang_up(self) -> None:
        if self._connection:
            self._connection.terminate()
            self._connection = None

    def _heard(self, _connection: object, _pid: int, topic: str, _payload: object) -> None:
        self._on[topic]()
