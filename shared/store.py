"""The statements that every process runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from shared.access import Caller, Role
from shared.database import Executor, Statements

sql = Statements("shared")


@dataclass(frozen=True, slots=True)
class StoredKey:
    """An API key that is good."""

    caller: Caller
    secret_hash: bytes
    good_for: timedelta | None
    """Until it expires; None: it does not."""


class Store:
    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def read_schema_version(self) -> int:
        rows = await self._executor.fetch(sql["read_schema_version"])
        version: int = rows[0]["version"]
        return version

    async def notify_topics(self, topics: Sequence[str]) -> None:
        await self._executor.fetch(sql["notify_topics"], topics)

    async def find_api_keys(self, ids: Sequence[str]) -> Mapping[str, StoredKey]:
        """Those that are good now; the others are unknown, expired or revoked."""
        rows = await self._executor.fetch(sql["find_api_keys"], ids)
        return {
            row["id"]: StoredKey(
                Caller(f"key:{row['id']}", row["tenant_id"], Role(row["role"])), row["secret_hash"], row["good_for"]
            )
            for row in rows
        }
