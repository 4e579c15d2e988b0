"""Writes docs/tracing.md's trees, from what a collector was told of notifications that really went this way.

`python -m tools.trace_page` starts a database and all services for it, and takes a few seconds. That the page is as
they are is looked at by tests/integration/test_traces.py, which has both anyway.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID, uuid4

if __name__ == "__main__":
    from shared import starting

    starting.spare_children()

import asyncpg
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation import grpc as instrumentation
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from pydantic import SecretStr

from notifyqueue import Client, connect
from notifyqueue.v1.notification_pb2 import EmailContent
from notifyqueue.v1.scheduler_pb2 import ScheduleNotificationRequest
from sandbox.__main__ import start as start_sandbox
from sandbox.collector import Collector, Span, tree
from sandbox.postgres import Postgres
from sandbox.settings import Settings as SandboxSettings
from services.dispatcher import __main__ as dispatcher_process
from services.dispatcher.settings import Settings as DispatcherSettings
from services.scheduler import __main__ as scheduler_process
from services.scheduler.settings import Settings as SchedulerSettings
from services.worker import __main__ as worker_process
from services.worker.providers.smtp import Tls
from services.worker.settings import Settings as WorkerSettings
from shared import logs, telemetry
from shared.migrations import migrate
from shared.process import Process
from shared.roles import SERVICES, create_roles

PAGE = Path(__file__).resolve().parent.parent / "docs" / "tracing.md"
BEGIN, END = "<!-- recorded: tools/trace_page.py -->\n", "<!-- end -->\n"

INTERCEPTORS: Callable[[TracerProvider], Any] = instrumentation.aio_client_interceptors

KEY = SecretStr("a secret key for traces, 32 characters")
OURS: dict[str, Any] = {
    "listen_address": "127.0.0.1:0",
    "health_listen": "127.0.0.1:0",
    "secret_key": KEY,
    "auth": "off",
}
MARK = "mk-"
LOGINS = "traced"  # their prefix, and their password
PATIENCE = 60.0  # seconds
BATCH = ("first", "second", "third")

STANDS = """
SELECT n.status, count(d.id) FILTER (WHERE d.delivered_at IS NOT NULL)
FROM notifyqueue.notifications AS n
LEFT JOIN notifyqueue.webhook_events AS e ON e.notification_id = n.id
LEFT JOIN notifyqueue.webhook_deliveries AS d ON d.event_id = e.id
WHERE n.id = $1
GROUP BY n.id
"""
LATE = """
UPDATE notifyqueue.notifications
SET created_at = created_at - interval '16 minutes', due_at = now(), next_attempt_at = now()
WHERE id = $1
"""


@dataclass
class Recorded:
    """Notifications by what became of them, and all that was told of them."""

    collector: Collector
    ids: dict[str, str] = field(default_factory=dict)

    def spans(self, name: str) -> list[Span]:
        return self.collector.about(self.ids[name])


async def record(owner: str, login: Callable[[str], str], *, webhook_url: str | None = None) -> Recorded:
    """Runs everything, in this process. `login` is the URL of a service's own. Without an URL the sandbox is told."""
    async with Collector() as collector:
        variables = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": collector.endpoint, "OTEL_SERVICE_NAME": "notifyqueue"}
        recorded = Recorded(collector)
        with patch.dict("os.environ", variables):
            async with telemetry.configured("all", uuid4()), AsyncExitStack() as stack:
                await _play(recorded, owner, await _started(stack, owner, login, webhook_url))
        return recorded


async def _started(stack: AsyncExitStack, owner: str, login: Callable[[str], str], webhook_url: str | None) -> str:
    """The scheduler's address."""
    mailbox, http = await start_sandbox(SandboxSettings(database_url=SecretStr(owner), smtp_port=0, http_port=0), stack)
    sandbox = f"http://127.0.0.1:{http.port}"
    scheduler = Process(
        "scheduler",
        chosen := SchedulerSettings(database_url=SecretStr(login("scheduler")), max_attempts=2, **OURS),
        stack,
    )
    await scheduler_process.start(scheduler, chosen)
    hooked = DispatcherSettings(
        database_url=SecretStr(login("dispatcher")),
        webhook_url=webhook_url or f"{sandbox}/webhooks/traced",
        webhook_secret=SecretStr("whsec_" + "A" * 43 + "="),
        webhook_allow_addresses="127.0.0.1/32",
        **OURS,
    )
    await dispatcher_process.start(Process("dispatcher", hooked, stack), hooked)
    working = WorkerSettings(
        database_url=SecretStr(login("worker")),
        email_provider="smtp",
        smtp_host="127.0.0.1",
        smtp_port=mailbox.port,
        smtp_tls=Tls.NONE,
        smtp_sender="Mk- <mk-shop@example.com>",
        sms_provider="mock",
        mock_url=sandbox,
        retry_base=0.05,
        retry_cap=0.1,
        poll_interval=1.0,
        email_concurrency=1,  # one after the other, so that no two are recorded by one statement, or by chance
        **OURS,
    )
    await worker_process.start(Process("worker", working, stack), working)
    return f"127.0.0.1:{scheduler.port}"


async def _play(recorded: Recorded, owner: str, address: str) -> None:
    connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(owner)
    try:
        async with _client(recorded.collector, address) as client:
            play = Play(recorded, client, connection)
            await play.one("sent", "mk-anna@example.org", "SENT")
            await play.one("retried", "451x1+mk-anna@example.org", "SENT")
            await play.one("dead", "451x2+mk-anna@example.org", "DEAD_LETTERED")
            await client.redrive(notification_id=recorded.ids["dead"])
            await play.reported("dead", "SENT", 2)
            await play.late("late", "mk-berta@example.org")
            await play.batch({name: f"mk-{name}@example.org" for name in BATCH})
    finally:
        await connection.close()


class Play:
    def __init__(self, recorded: Recorded, client: Client, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._recorded = recorded
        self._client = client
        self._connection = connection

    async def one(self, name: str, address: str, end: str) -> None:
        answer = await self._client.schedule(_request(name, address))
        self._recorded.ids[name] = answer.notification.notification_id
        await self.reported(name, end)

    async def late(self, name: str, address: str) -> None:
        """Due a moment ago, and accepted long before."""
        request = _request(name, address)
        request.delay.FromSeconds(3600)
        answer = await self._client.schedule(request)
        self._recorded.ids[name] = answer.notification.notification_id
        await self._connection.execute(LATE, UUID(self._recorded.ids[name]))
        await self.reported(name, "SENT")

    async def batch(self, addresses: Mapping[str, str]) -> None:
        results = await self._client.batch(_request(name, address) for name, address in addresses.items())
        for name, result in zip(addresses, results, strict=True):
            self._recorded.ids[name] = result.accepted.notification_id
        for name in addresses:
            await self.reported(name, "SENT")

    async def reported(self, name: str, status: str, times: int = 1) -> None:
        """Once it has ended like this, and the endpoint was told."""
        expected = (status, times)
        async with asyncio.timeout(PATIENCE):
            while await self._stands(name) != expected:  # noqa: ASYNC110  # what the services do can only be looked at
                await asyncio.sleep(0.02)

    async def _stands(self, name: str) -> tuple[str, int]:
        row = await self._connection.fetchrow(STANDS, UUID(self._recorded.ids[name]))
        return (row[0], row[1]) if row else ("", 0)


def _request(key: str, address: str) -> ScheduleNotificationRequest:
    """With marks in all that is personal."""
    email = EmailContent(subject=f"{MARK}subject", text=f"{MARK}text", headers={"X-Note": f"{MARK}header"})
    return ScheduleNotificationRequest(
        idempotency_key=f"{MARK}{key}",
        address=address,
        email=email,
        reference=f"{MARK}reference",
        labels={f"{MARK}label": f"{MARK}label"},
    )


@asynccontextmanager
async def _client(collector: Collector, address: str) -> AsyncIterator[Client]:
    """As a shop's program has it, with OpenTelemetry's own interceptors."""
    provider = TracerProvider(resource=Resource.create({"service.name": "shop"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=collector.endpoint)))
    async with connect(address, interceptors=INTERCEPTORS(provider)) as client:
        yield client
    await asyncio.to_thread(provider.shutdown)


TITLES = {
    "sent": "Accepted, sent, reported",
    "retried": "Sent at the second attempt",
    "dead": "Dead-lettered, and redriven by an operator",
    "late": "Sent more than a quarter of an hour after it was accepted",
    "first": "Three of one batch",
}


def sections(recorded: Recorded) -> str:
    """The page's part that is made."""
    parts = [f"### {title}\n\n```\n{chr(10).join(tree(recorded.spans(name)))}\n```\n" for name, title in TITLES.items()]
    return BEGIN + "\n" + "\n".join(parts) + "\n" + END


def with_sections(page: str, made: str) -> str:
    head, _, rest = page.partition(BEGIN)
    return head + made + rest.partition(END)[2]


def main() -> None:
    logs.configure("trace page", "ERROR")
    with tempfile.TemporaryDirectory(prefix="notifyqueue-traces-") as folder:
        Path(folder).chmod(0o755)
        with Postgres(Path(folder) / "data") as server:
            recorded = asyncio.run(_record(server.url))
    PAGE.write_text(with_sections(PAGE.read_text(), sections(recorded)))


async def _record(url: str) -> Recorded:
    await migrate(url)
    await create_roles(url, LOGINS, dict.fromkeys(SERVICES, LOGINS))
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return await record(url, lambda service: urlunsplit(parts._replace(netloc=f"{LOGINS}_{service}:{LOGINS}@{host}")))


if __name__ == "__main__":
    main()
