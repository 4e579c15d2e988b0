"""The statements that erase a subscriber: one method each, named like its file in sql/. Always in transactions."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

from services.scheduler.changes import By
from services.scheduler.erasure import Erased, Person
from services.scheduler.store import sql
from shared.database import Database, Executor, columns


class ErasureStatements:
    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def hold_subscriber(self, tenant: str, name: str) -> Person | None:
        rows = await self._executor.fetch(sql["hold_subscriber"], tenant, name)
        if not rows:
            return None
        row = rows[0]
        places = (("EMAIL", row["email"]), ("SMS", row["phone"]), ("PUSH", row["push"]))
        return Person(row["id"], [(channel, address) for channel, address in places if address])

    async def erase_notifications(self, tenant: str, name: str, above: UUID, limit: int, by: By) -> Sequence[Erased]:
        """In the order of their ids."""
        args = (tenant, name, above, limit, by.actor, by.note)
        rows = await self._executor.fetch(sql["erase_notifications"], *args)
        return [Erased(row["id"], row["status"], (row["channel"], row["address"])) for row in rows]

    async def set_pseudonyms(self, tenant: str, places: Sequence[tuple[str, str, str]]) -> None:
        """Channels, addresses, and what stands for each."""
        await self._executor.fetch(sql["set_pseudonyms"], tenant, *columns(places, 3))

    async def erase_suppressions(self, tenant: str, places: Sequence[tuple[str, str, str]]) -> None:
        """Likewise."""
        await self._executor.fetch(sql["erase_suppressions"], tenant, *columns(places, 3))

    async def delete_subscriber(self, person: UUID) -> None:
        await self._executor.fetch(sql["delete_subscriber"], person)


class ErasureStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[ErasureStatements]:
        async with self._database.transaction() as connection:
            yield ErasureStatements(connection)
