"""The statements of accepting, on their own and in transactions: one method each, named like its file in sql/."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from services.scheduler.accept import BucketHeld
from services.scheduler.store import Store, sql
from shared.database import Database, LockTimeout, columns


class AcceptStatements(Store):
    async def lock_buckets(self, tenants: Sequence[str], *, pass_held: bool) -> set[str]:
        """Those that there are. `pass_held`: but for what somebody holds. Raises BucketHeld."""
        statement = sql["lock_buckets"]
        if pass_held:
            statement = statement.replace("FOR NO KEY UPDATE\n", "FOR NO KEY UPDATE SKIP LOCKED\n")
        try:
            return {row["tenant_id"] for row in await self._executor.fetch(statement, tenants)}
        except LockTimeout as error:
            raise BucketHeld from error

    async def count_pending(self, quotas: Mapping[str, int]) -> Mapping[str, int]:
        """By tenant, up to its quota."""
        rows = await self._executor.fetch(sql["count_pending"], *columns(list(quotas.items()), 2))
        return {row["tenant_id"]: row["pending"] for row in rows}

    async def charge_buckets(self, empty_at: Mapping[str, datetime], pending: Mapping[str, int]) -> None:
        """`empty_at` of those with a limit; `pending`, how many went in, of those with a quota."""
        tenants = sorted(empty_at.keys() | pending.keys())
        spent = [(tenant, empty_at.get(tenant), pending.get(tenant, 0)) for tenant in tenants]
        await self._executor.fetch(sql["charge_buckets"], *columns(spent, 3))

    async def make_buckets(self, tenants: Sequence[str]) -> None:
        await self._executor.fetch(sql["make_buckets"], tenants)


class AcceptStore(AcceptStatements):
    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._database = database

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AcceptStatements]:
        async with self._database.transaction() as connection:
            yield AcceptStatements(connection)
