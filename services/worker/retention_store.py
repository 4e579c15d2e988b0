"""The statements of retention: one method each, named like its file in sql/."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from shared.database import Database, Executor, Statements
from shared.removal import Removal, Removed

sql = Statements("services.worker")


@dataclass(frozen=True, slots=True)
class Looked:
    """At how many events, and how far."""

    count: int
    mark: UUID | None
    """Of the last one; None where there was none."""


@dataclass(frozen=True, slots=True)
class Removable:
    """Both ascending."""

    notification_ids: Sequence[UUID]
    event_ids: Sequence[UUID]


class Batch:
    """What is done in one transaction."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def take_mark(self, sweep: str) -> UUID | None:
        """None: another worker holds it."""
        rows = await self._executor.fetch(sql["take_mark"], sweep)
        return rows[0]["mark"] if rows else None

    async def move_mark(self, sweep: str, mark: UUID, *, caught_up: bool, again: timedelta | None) -> None:
        await self._executor.fetch(sql["move_mark"], sweep, mark, caught_up, again)

    async def erase_contents(self, mark: UUID, age: timedelta, *, final: bool, limit: int) -> tuple[Looked, int]:
        """How far it looked, and how many were erased."""
        (row,) = await self._executor.fetch(sql["erase_contents"], mark, age, final, limit)
        return Looked(row["looked"], row["mark"]), row["erased"]

    async def find_removable(self, mark: UUID, age: timedelta, *, limit: int) -> tuple[Looked, Removable]:
        """The notifications are held until the transaction ends."""
        (row,) = await self._executor.fetch(sql["find_removable"], mark, age, limit)
        return Looked(row["looked"], row["mark"]), Removable(row["notification_ids"], row["event_ids"])

    async def remove(self, found: Removable) -> Removed:
        return await Removal(self._executor).remove(found.notification_ids, found.event_ids)


class RetentionStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    @asynccontextmanager
    async def batch(self) -> AsyncIterator[Batch]:
        async with self._database.transaction() as connection:
            yield Batch(connection)

    async def merge_totals(self) -> int:
        """How many deltas it took."""
        rows = await self._database.fetch(sql["merge_totals"])
        merged: int = rows[0]["merged"]
        return merged

    async def remove_dead_workers(self, age: timedelta) -> int:
        """How many."""
        return len(await self._database.fetch(sql["remove_dead_workers"], age))

    async def remove_reservations(self, age: timedelta) -> int:
        """How many, of those that left their window longer ago."""
        return len(await self._database.fetch(sql["remove_reservations"], age))

    async def remove_lane_history(self, age: timedelta) -> int:
        """How many entries."""
        return len(await self._database.fetch(sql["remove_lane_history"], age))
