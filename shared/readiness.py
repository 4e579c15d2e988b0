"""Whether this process should be called: its database answers, and has the schema that this code was written for."""

import asyncio
from collections.abc import Callable
from typing import Protocol, Self

import structlog

from shared.database import DatabaseBug
from shared.errors import DatabaseUnavailable
from shared.loop import Loop
from shared.server import Health

log = structlog.get_logger()

PING_TIMEOUT = 1.5
PING_INTERVAL = 2.0
FAILURES = 3  # in a row, so that one slow answer does not take a replica out


class SchemaVersion(Protocol):
    async def read_schema_version(self) -> int: ...


class Readiness:
    """Keeps health up to date. Leaving says not ready first, then gives load balancers `delay` seconds to notice."""

    def __init__(
        self,
        store: SchemaVersion,
        health: Health,
        *,
        schema_version: int,
        draining: Callable[[], bool],
        delay: float,
    ) -> None:
        self._store = store
        self._health = health
        self._expected = schema_version
        self._draining = draining
        self._delay = delay
        self._failures = FAILURES  # not ready until the first answer
        self._found: int | None = None
        self._ready = False
        self._loop = Loop("readiness", self._ping)

    async def __aenter__(self) -> Self:
        await self._loop.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._loop.__aexit__()
        await self._health.set_ready(False)
        await asyncio.sleep(self._delay)

    async def _ping(self) -> float:
        try:
            async with asyncio.timeout(PING_TIMEOUT):
                version = await self._store.read_schema_version()
        except (DatabaseUnavailable, TimeoutError):
            self._failures += 1
        except DatabaseBug as error:  # there is no such table, or not for this login
            self._judge(0, error)
        else:
            self._judge(version)
        await self._tell(self._failures < FAILURES and not self._draining())
        return PING_INTERVAL

    def _judge(self, version: int, error: Exception | None = None) -> None:
        # A newer schema is what a rolling update looks like from the old version.
        outdated = version < self._expected
        self._failures = FAILURES if outdated else 0
        if outdated and version != self._found:  # said once, not with every ping
            log.error("schema.outdated", found=version, expected=self._expected, exc_info=error)
        self._found = version

    async def _tell(self, ready: bool) -> None:
        if ready != self._ready:
            self._ready = ready
            await self._health.set_ready(ready)
            log.info("process.ready" if ready else "process.not_ready")
