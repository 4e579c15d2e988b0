"""From start to stop, the same for all services: one stack of things that live; its order is the order of starting.

Leaving the stack is the drain: not ready, then whatever was entered last, down to the pool and what is told of it all.
"""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TypeVar
from uuid import uuid4

import structlog

from shared import auth, logs, telemetry, tls
from shared.database import Database
from shared.layers import NONE_OF_ITS_OWN, Bounds, Layer, bounded, errors_mapped, logged, measured, shaped, timed
from shared.migrations import latest_version
from shared.readiness import Readiness
from shared.server import Health, HealthServer, Server, Service
from shared.settings import ProcessSettings, SettingsInvalid, load
from shared.starting import settle
from shared.store import Store
from shared.telemetry import metrics, traces
from shared.telemetry.serving import traced

log = structlog.get_logger()

AnySettings = TypeVar("AnySettings", bound=ProcessSettings)

EX_CONFIG = 78  # sysexits.h: something was found in an unconfigured or misconfigured state


class Process:
    """What a service is built from; each method enters one part on the stack and answers it."""

    def __init__(self, name: str, settings: ProcessSettings, stack: AsyncExitStack) -> None:
        self.name = name
        self.settings = settings
        self.stack = stack
        self.port = 0
        self.id = uuid4()

    async def open_database(self, *, size: int | None = None) -> Database:
        """`size` is how many connections it has at most. Default: what the settings say."""
        url = self.settings.database_url.get_secret_value()
        database = Database(url, name=f"notifyqueue {self.name}", size=size or self.settings.database_pool_max)
        return await self.stack.enter_async_context(database)

    async def serve(
        self,
        database: Database,
        services: Sequence[Service],
        *,
        untimed: frozenset[str] = frozenset(),
        large: frozenset[str] = frozenset(),
        bounds: Mapping[str, Bounds] = NONE_OF_ITS_OWN,
    ) -> Health:
        """`database` knows the API keys; `untimed` and `large` are methods that may take longer, or more bytes, than
        others; `bounds` has those with bounds of their own.
        """
        health = await self.stack.enter_async_context(Health([service.name for service in services]))
        await self.stack.enter_async_context(HealthServer(self.settings.health_listen, health))
        identified, permitted = await self._authentication(database)
        files = self.settings.tls_files()
        server = Server(
            self.settings.listen_address,
            services,
            health=health,
            grace=self.settings.shutdown_timeout,
            reflection_layers=[identified],
            credentials=tls.credentials(files) if files else None,
        )
        server.layers = [
            *([measured] if metrics.Metric.kept else []),
            *([traced] if traces.on() else []),
            logged,
            errors_mapped,
            timed(self.settings.call_timeout, unbounded=untimed, own=bounds),
            identified,
            *permitted,
            bounded(self.settings.max_calls, lambda: server.stopping, own=bounds),
            shaped(large=large),
        ]
        await self.stack.enter_async_context(server)
        self.port = server.port
        return health

    async def _authentication(self, database: Database) -> tuple[Layer, Sequence[Layer]]:
        """The layer that says who calls, and what judges whether they may."""
        if self.settings.auth == "off":
            return auth.anonymous, []
        callers = await self.stack.enter_async_context(auth.Callers(Store(database)))
        return auth.authenticated(callers), [auth.permitted]

    async def become_ready(
        self, database: Database, health: Health, *, draining: Callable[[], bool] = lambda: False
    ) -> None:
        """The last to enter, so that it is the first to leave."""
        self.stack.enter_context(metrics.DRAINING.looked_at(lambda: {(): float(draining())}))
        readiness = Readiness(
            Store(database),
            health,
            schema_version=latest_version(),
            draining=draining,
            delay=self.settings.shutdown_delay,
        )
        await self.stack.enter_async_context(readiness)


def run(name: str, kind: type[AnySettings], start: Callable[["Process", AnySettings], Awaitable[None]]) -> None:
    """Runs a service until SIGTERM or SIGINT, then drains it. Exits with 78 where the settings cannot be used."""
    try:
        settings = load(kind)
    except SettingsInvalid as error:
        print(f"{name}: settings\n{error}", file=sys.stderr)
        sys.exit(EX_CONFIG)
    settle()
    asyncio.run(_run(name, settings, start))


async def _run(name: str, settings: AnySettings, start: Callable[["Process", AnySettings], Awaitable[None]]) -> None:
    logs.configure(name, settings.log_level)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        process = Process(name, settings, stack)
        await stack.enter_async_context(telemetry.configured(name, process.id))
        await start(process, settings)
        log.info("process.started")
        await stop.wait()
        log.info("process.stopping")
    log.info("process.stopped")
