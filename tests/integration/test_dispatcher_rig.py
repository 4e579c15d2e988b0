"""What the dispatcher's tests stand on: its statements on a database, and receivers that answer as told."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Self
from uuid import UUID, uuid4

import asyncpg
import grpc.aio
from aiohttp import web
from pydantic import SecretStr

from notifyqueue.v1 import dispatcher_pb2_grpc
from services.dispatcher import __main__ as dispatcher_process
from services.dispatcher.delivery import Delivery, Result
from services.dispatcher.endpoints import Draft
from services.dispatcher.keys import Keys
from services.dispatcher.outcome import Answer, ErrorClass, Verdict
from services.dispatcher.settings import Settings
from services.dispatcher.store import Claimed, Store
from shared.database import Database
from shared.process import Process
from tests.conftest import login

SECRET_KEY = "a secret key for tests, 32 characters"
KEY = bytes(range(32))
LEASE = timedelta(minutes=1)
NOWHERE = "http://127.0.0.1:9/"
DELIVERED = Verdict(delivered=True)
REFUSED = Answer(500, ErrorClass.STATUS)


class Rig:
    """The dispatcher's statements on a database, and the rows that they find there."""

    def __init__(self, database: Database, connection: "asyncpg.Connection[asyncpg.Record]", url: str) -> None:
        self.database = database
        self.url = url
        self.store = Store(database)
        self.keys = Keys(SECRET_KEY.encode())
        self.connection = connection
        self.fetch = connection.fetch
        self.execute = connection.execute
        self.value = connection.fetchval

    @classmethod
    async def open(cls, stack: AsyncExitStack, url: str) -> Self:
        connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(url)
        stack.push_async_callback(connection.close)
        return cls(await stack.enter_async_context(Database(url, name="test", size=16)), connection, url)

    async def tenant(self, name: str) -> str:
        await self.execute("INSERT INTO notifyqueue.tenants (id) VALUES ($1)", name)
        return name

    async def endpoint(self, url: str = NOWHERE, *types: str, tenant: str = "default", age: str = "1 hour") -> UUID:
        """An endpoint, named `age` ago."""
        endpoint_id = await self.store.new_endpoint_id()
        sealed = self.keys.seal(tenant, endpoint_id, KEY)
        draft = Draft(url, types)
        assert await self.store.insert_endpoint(endpoint_id, tenant, draft, sealed, configured=False, most=None)
        await self.execute(
            "UPDATE notifyqueue.webhook_endpoints SET created_at = now() - $2::text::interval WHERE id = $1",
            endpoint_id,
            age,
        )
        return endpoint_id

    async def events(self, count: int, status: str = "SENT", *, tenant: str = "default", **facts: Any) -> list[UUID]:
        """Events of that many notifications, that ended just now."""
        columns: dict[str, Any] = {"redrive_count": 0, "attempt_count": 1, "channel": "EMAIL", "labels": "{}"}
        columns |= {"tenant_id": tenant, "status": status, **facts}
        marks = [f"${number}" for number in range(2, len(columns) + 2)]
        rows = await self.fetch(
            f"""
            INSERT INTO notifyqueue.webhook_events (notification_id, occurred_at, {", ".join(columns)})
            SELECT gen_random_uuid(), now(), {", ".join(marks)} FROM generate_series(1, $1) RETURNING id
            """,
            count,
            *columns.values(),
        )
        return [row["id"] for row in rows]

    async def deliveries(self, count: int, endpoint_id: UUID, **facts: Any) -> list[UUID]:
        """That many due deliveries to one endpoint, of as many events."""
        await self.events(count, **facts)
        while (await self.store.fan_out_events())[0]:
            pass
        rows = await self.fetch(
            "SELECT id FROM notifyqueue.webhook_deliveries WHERE endpoint_id = $1 ORDER BY next_attempt_at, id",
            endpoint_id,
        )
        return [row["id"] for row in rows]

    async def claim(
        self, *, cap: int = 10, limit: int = 100, lease: timedelta = LEASE, max_attempts: int = 10
    ) -> Claimed:
        async with self.database.transaction() as executor:
            store = Store(executor)
            taken = await store.take_endpoints(cap, limit)
            return await store.claim_deliveries(
                taken, cap=cap, limit=limit, token=uuid4(), lease=lease, max_attempts=max_attempts, tick=0.0
            )

    async def record(self, delivery: Delivery, answer: Answer, verdict: Verdict) -> bool:
        (recorded,) = await self.store.record_results([result(delivery, answer, verdict)])
        return recorded

    async def delivery(self, delivery_id: UUID) -> asyncpg.Record:
        (row,) = await self.fetch("SELECT * FROM notifyqueue.webhook_deliveries WHERE id = $1", delivery_id)
        return row

    async def stored_endpoint(self, endpoint_id: UUID) -> asyncpg.Record:
        (row,) = await self.fetch("SELECT * FROM notifyqueue.webhook_endpoints WHERE id = $1", endpoint_id)
        return row

    async def attempts(self, delivery_id: UUID) -> Sequence[tuple[int, int | None, str | None]]:
        rows = await self.fetch(
            """
            SELECT attempt, http_status, error_class FROM notifyqueue.webhook_attempts
            WHERE delivery_id = $1 ORDER BY attempt
            """,
            delivery_id,
        )
        return [(row["attempt"], row["http_status"], row["error_class"]) for row in rows]

    async def expire_leases(self) -> None:
        """As if every dispatcher that holds one had died long ago."""
        await self.execute(
            """
            WITH expired AS (
              UPDATE notifyqueue.webhook_deliveries SET next_attempt_at = now() - interval '1 second'
              WHERE claim_token IS NOT NULL RETURNING endpoint_id)
            UPDATE notifyqueue.webhook_endpoints SET next_due_at = now() - interval '1 second'
            WHERE id IN (SELECT endpoint_id FROM expired)
            """
        )

    async def make_due(self) -> None:
        """As if everything that waits had waited long enough."""
        await self.execute("UPDATE notifyqueue.webhook_endpoints SET paused_until = '-infinity', next_due_at = now()")
        await self.execute(
            """
            UPDATE notifyqueue.webhook_deliveries SET next_attempt_at = now() - interval '1 second'
            WHERE claim_token IS NULL AND delivered_at IS NULL AND given_up_at IS NULL
            """
        )


async def start_dispatcher(
    stack: AsyncExitStack, url: str, *, within: AsyncExitStack | None = None, **settings: Any
) -> dispatcher_pb2_grpc.WebhookDispatcherStub:
    """A whole dispatcher in this process, with its own login, and a stub of it. It lives in `stack` or `within`."""
    own: dict[str, Any] = {
        "listen_address": "127.0.0.1:0",
        "health_listen": "127.0.0.1:0",
        "secret_key": SecretStr(SECRET_KEY),
        "auth": "off",
        "webhook_allow_addresses": "127.0.0.1/32",
    }
    chosen = Settings(database_url=SecretStr(login(url, "dispatcher")), **own | settings)
    process = Process("dispatcher", chosen, within or stack)
    await dispatcher_process.start(process, chosen)
    channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{process.port}"))
    return dispatcher_pb2_grpc.WebhookDispatcherStub(channel)


def result(delivery: Delivery, answer: Answer, verdict: Verdict) -> Result:
    return Result(delivery, delivery.claimed_at, timedelta(milliseconds=5), answer, verdict)


Respond = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def accept(_: web.Request) -> web.StreamResponse:
    return web.Response(status=204)


@dataclass
class Receiver:
    """An endpoint on loopback. `respond` may be replaced at any time; what arrived is kept."""

    respond: Respond = accept
    url: str = ""
    posts: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    waiting: int = 0
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._receive)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/hook"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _receive(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.waiting += 1
        try:
            async with self._arrived:
                self.posts.append((dict(request.headers), body))
                self._arrived.notify_all()
            return await self.respond(request)
        finally:
            self.waiting -= 1

    async def received(self, count: int) -> None:
        """Until that many posts have arrived."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.posts) >= count)

    def ids(self) -> list[str]:
        """The webhook-id of each post, in order of arrival."""
        return [headers["webhook-id"] for headers, _ in self.posts]


def hang(until: asyncio.Event) -> Respond:
    async def respond(_: web.Request) -> web.StreamResponse:
        await until.wait()
        return web.Response(status=204)

    return respond


def answer(status: int, **headers: str) -> Respond:
    async def respond(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers={name.replace("_", "-"): value for name, value in headers.items()})

    return respond
