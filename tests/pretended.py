"""The sandbox's HTTP providers for tests: one server for a whole module, which many calls are made to."""

import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID, uuid4

import asyncpg

from sandbox.postgres import Postgres
from sandbox.server import HttpServer, Service
from sandbox.store import Store
from services.worker.providers import Handover, Message, Outcome, Provider
from services.worker.providers.answers import Row, Table

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Pretended:
    """A sandbox's server, and what it has kept."""

    store: Store
    url: str

    async def requests(self, server: str, address: str) -> list[str]:
        """What was done with each request for this address."""
        return [row["action"] for row in await self.store.list_requests(server, address)]


@asynccontextmanager
async def pretending(postgres: Postgres, make: Callable[[Store], Iterable[Service]]) -> AsyncIterator[Pretended]:
    """On a database of its own, since the fixtures' live no longer than a test."""
    name = f"pretended_{next(_numbers)}"
    connection = await asyncpg.connect(postgres.url)
    try:
        await connection.execute(f"CREATE DATABASE {name}")
        async with Store(postgres.url_of(name)) as store, HttpServer(0, make(store)) as server:
            yield Pretended(store, f"http://127.0.0.1:{server.port}")
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await connection.close()


async def deliver(
    provider: Provider, address: str, content: Mapping[str, object], key: UUID | None = None, attempt: int = 1
) -> tuple[Outcome, bool]:
    """The outcome, and whether the message was handed over."""
    handover = Handover()
    outcome = await provider.deliver(Message(key or uuid4(), attempt, address, content), handover)
    return outcome, handover.begun


def deciding(table: Table, code: str, text: str = "") -> Row:
    """The row that an outcome's code comes from."""
    status, _, own = code.partition("-")
    return next(row for row in table if row.fits(status, own, text))
