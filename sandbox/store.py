"""The sandbox's statements: one method each, named like its file in sql/."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from typing import Any, Self
from uuid import UUID

import asyncpg

from shared.database import Database, Statements

sql = Statements("sandbox")

# Two that start at once must not both create the schema. Any constant will do.
LOCK = 0x73616E64626F78

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Mail:
    delivery_key: str | None
    address: str
    sender: str
    subject: str
    text: str | None
    html: str | None
    raw: bytes


class Store:
    """A database with the sandbox's schema, which is made where it is missing."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._database = Database(url, name="notifyqueue sandbox")
        self.arrival = asyncio.Event()
        """Is set by what arrives or is refused next, and another one takes its place."""

    async def __aenter__(self) -> Self:
        await _create_schema(self._url)
        await self._database.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._database.__aexit__(*error)

    async def ping(self) -> None:
        """Raises DatabaseUnavailable."""
        await self._fetch("ping")

    async def count_play(self, server: str, subject: str) -> int:
        rows = await self._fetch("count_play", server, subject)
        return int(rows[0]["played"])

    async def add_request(
        self, server: str, address: str, action: str, *, delivery_key: str | None = None, attempt: int | None = None
    ) -> None:
        await self._arrive("add_request", server, address, delivery_key, attempt, action)

    async def list_requests(self, server: str | None = None, address: str | None = None) -> list[Row]:
        return await self._fetch("list_requests", server, address)

    async def add_mail(self, mail: Mail) -> int:
        """The id under which it is kept."""
        values = (mail.delivery_key, mail.address, mail.sender, mail.subject, mail.text, mail.html, mail.raw)
        rows = await self._arrive("add_mail", *values)
        return int(rows[0]["id"])

    async def list_mails(
        self, address: str | None = None, delivery_key: str | None = None, containing: str | None = None
    ) -> list[Row]:
        return await self._fetch("list_mails", address, delivery_key, containing)

    async def get_raw_mail(self, number: int) -> bytes:
        """Raises LookupError."""
        rows = await self._fetch("get_raw_mail", number)
        return bytes(rows[0]["raw"])

    async def add_mock_delivery(self, key: UUID, channel: str, address: str, content: Mapping[str, Any]) -> int:
        rows = await self._arrive("add_mock_delivery", key, channel, address, json.dumps(content))
        return int(rows[0]["deliveries"])

    async def list_mock_deliveries(
        self, address: str | None = None, key: UUID | None = None, containing: str | None = None
    ) -> list[Row]:
        rows = await self._fetch("list_mock_deliveries", address, key, containing)
        return [row | {"content": json.loads(row["content"])} for row in rows]

    async def add_message(
        self, server: str, address: str, content: Mapping[str, Any], *, taken_as: str, replaces: str | None = None
    ) -> None:
        """`taken_as` is the id that was answered. What it `replaces` on the device is what has the same key there."""
        await self._arrive("add_message", server, address, taken_as, replaces, json.dumps(content))

    async def list_messages(
        self, server: str | None = None, address: str | None = None, containing: str | None = None
    ) -> list[Row]:
        rows = await self._fetch("list_messages", server, address, containing)
        return [row | {"content": json.loads(row["content"])} for row in rows]

    async def put_answer(self, server: str, key: str, fingerprint: bytes, answer: Mapping[str, Any]) -> None:
        await self._fetch("put_answer", server, key, fingerprint, json.dumps(answer))

    async def get_answer(self, server: str, key: str) -> Row | None:
        rows = await self._fetch("get_answer", server, key)
        return rows[0] | {"answer": json.loads(rows[0]["answer"])} if rows else None

    async def put_webhook_secret(self, name: str, secret: str) -> None:
        await self._fetch("put_webhook_secret", name, secret)

    async def get_webhook_secret(self, name: str) -> str | None:
        rows = await self._fetch("get_webhook_secret", name)
        return str(rows[0]["secret"]) if rows else None

    async def add_webhook(self, name: str, webhook_id: str, body: str, *, verified: bool | None, answer: int) -> None:
        await self._arrive("add_webhook", name, webhook_id, body, verified, answer)

    async def list_webhooks(self, name: str, containing: str | None = None) -> list[Row]:
        return await self._fetch("list_webhooks", name, containing)

    async def list_arrivals(
        self, kind: str | None, containing: str | None, before: tuple[datetime, str] | None
    ) -> list[Row]:
        return await self._fetch("list_arrivals", kind, containing, *(before or (None, None)))

    async def get_mail(self, number: int) -> Row | None:
        return await self._get("get_mail", number)

    async def get_message(self, number: int) -> Row | None:
        row = await self._get("get_message", number)
        return row and row | {"content": json.loads(row["content"])}

    async def get_webhook(self, number: int) -> Row | None:
        return await self._get("get_webhook", number)

    async def get_request(self, number: int) -> Row | None:
        return await self._get("get_request", number)

    async def _arrive(self, name: str, *args: object) -> list[Row]:
        rows = await self._fetch(name, *args)
        arrived, self.arrival = self.arrival, asyncio.Event()
        arrived.set()
        return rows

    async def _get(self, name: str, *args: object) -> Row | None:
        return next(iter(await self._fetch(name, *args)), None)

    async def _fetch(self, name: str, *args: object) -> list[Row]:
        return [dict(row) for row in await self._database.fetch(sql[name], *args)]


async def _create_schema(url: str) -> None:
    schema = resources.files("sandbox").joinpath("schema.sql").read_text("utf-8")
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
            await connection.execute(schema)
    finally:
        await connection.close()
