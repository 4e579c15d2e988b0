"""The statements that every process runs."""

from collections.abc import Sequence

from shared.database import Executor, Statements

sql = Statements("shared")


class Store:
    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def read_schema_version(self) -> int:
        rows = await self._executor.fetch(sql["read_schema_version"])
        version: int = rows[0]["version"]
        return version

    async def notify_topics(self, topics: Sequence[str]) -> None:
        await self._executor.fetch(sql["notify_topics"], topics)
