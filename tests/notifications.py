"""Notifications put straight into the database, and what the database says of them."""

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg

CONTENT = {"subject": "Hello", "text": "How are you?"}


class Notifications:
    """The tables, as a test looks at them."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self.connection = connection

    async def insert(
        self, key: str, *, address: str = "someone@example.com", due_in: timedelta = timedelta(), **columns: Any
    ) -> UUID:
        """A PENDING notification, with content; `columns` are set as they are."""
        row: dict[str, Any] = {"tenant_id": "default", "idempotency_key": key, "fingerprint": b"", "channel": "EMAIL"}
        row |= {"address": address, "priority": 2, "max_attempts": 5} | columns
        if row.get("waiting") or row.get("granted"):
            row.setdefault("limit_key", f"{row['channel']} {row['address']}")
        names = ", ".join(row)
        numbers = ", ".join(f"${number}" for number in range(2, len(row) + 2))
        async with self.connection.transaction():
            id_: UUID = await self.connection.fetchval(
                f"INSERT INTO notifyqueue.notifications ({names}, due_at, next_attempt_at) "
                f"VALUES ({numbers}, now() + $1, now() + $1) RETURNING id",
                due_in,
                *row.values(),
            )
            await self.connection.execute(
                "INSERT INTO notifyqueue.notification_contents VALUES ($1, $2)", id_, json.dumps(CONTENT)
            )
        return id_

    async def insert_many(self, count: int, **columns: Any) -> list[UUID]:
        return [await self.insert(f"many-{number}", **columns) for number in range(count)]

    async def get(self, id_: UUID) -> "asyncpg.Record":
        row = await self.connection.fetchrow("SELECT * FROM notifyqueue.notifications WHERE id = $1", id_)
        assert row is not None
        return row

    async def status(self, id_: UUID) -> str:
        return str((await self.get(id_))["status"])

    async def statuses(self) -> dict[str, int]:
        rows = await self.connection.fetch("SELECT status, count(*) FROM notifyqueue.notifications GROUP BY status")
        return {row["status"]: row["count"] for row in rows}

    async def history(self, id_: UUID) -> "list[asyncpg.Record]":
        return await self.connection.fetch(
            "SELECT * FROM notifyqueue.notification_history WHERE notification_id = $1 ORDER BY id", id_
        )

    async def events(self, id_: UUID) -> list[str]:
        rows = await self.connection.fetch(
            "SELECT status FROM notifyqueue.webhook_events WHERE notification_id = $1 ORDER BY id", id_
        )
        return [row["status"] for row in rows]
