"""Every metric that is declared exists, and moves when what it says happens: one day of all three services."""

import asyncio
import socket
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from uuid import uuid4

import asyncpg
import pytest
from aiohttp import ClientSession
from pydantic import SecretStr
from structlog.testing import capture_logs

from notifyqueue.v1 import notification_pb2, scheduler_pb2, scheduler_pb2_grpc
from sandbox.postgres import Postgres
from services.scheduler.gauges import DOCTOR_INTERVAL, GAUGES, INTERVAL, Gauges
from services.scheduler.statistics import SHOWN
from services.scheduler.store import Store
from services.worker.providers import Answer, Outcome
from shared.database import Database
from shared.doctor import CHECKS, UNMADE, Bounds
from shared.telemetry import configured, readers
from shared.telemetry import metrics as m
from tests.conftest import login
from tests.integration.conftest import StartScheduler, StartWorker
from tests.integration.tcp_proxy import TcpProxy
from tests.integration.test_dispatcher_rig import KEY, Receiver, answer, start_dispatcher
from tests.notifications import Notifications
from tests.providers import ScriptedProvider
from tests.recipients import limit
from tests.telemetry import Metric, Otlp, Reader, reading
from tests.waiting import eventually

SECRET = SecretStr(f"whsec_{b64encode(KEY).decode()}")
HOUR = timedelta(hours=1)
SCHEDULE = "notifyqueue.v1.Scheduler/ScheduleNotification"


@pytest.fixture
def reader() -> Iterator[Reader]:
    with reading() as reader:
        yield reader


def request(key: str, address: str) -> scheduler_pb2.ScheduleNotificationRequest:
    email = notification_pb2.EmailContent(subject="Hello", text="How are you?")
    return scheduler_pb2.ScheduleNotificationRequest(idempotency_key=key, address=address, email=email)


class Seen:
    """What moved, and by how much."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.metrics: set[Metric] = set()

    async def until(self, metric: Metric, *attributes: str, least: float = 1) -> None:
        self.metrics.add(metric)
        await eventually(lambda: self._reader.value(metric, *attributes) >= least)


# --- those of a worker, a scheduler and a dispatcher at work


async def test_what_the_services_do_moves_their_metrics(
    database_url: str,
    notifications: Notifications,
    reader: Reader,
    stack: AsyncExitStack,
    start_scheduler: StartScheduler,
    start_worker: StartWorker,
) -> None:
    seen, logged = Seen(reader), stack.enter_context(capture_logs())
    await limit(notifications, 1, HOUR)
    receiver = await stack.enter_async_context(Receiver(respond=answer(500)))
    await start_dispatcher(stack, database_url, webhook_url=receiver.url, webhook_secret=SECRET)
    provider = ScriptedProvider()
    provider.name = "smtp"
    provider.script("again@example.com", Outcome(Answer.TRANSIENT, "451-4.4.1"))
    provider.script("never@example.com", Outcome(Answer.PERMANENT_MESSAGE, "550-anna_example.com"))
    stub = scheduler_pb2_grpc.SchedulerStub(await start_scheduler(database_url))
    worker = await start_worker(database_url, provider)
    lost = await notifications.insert("lost", due_in=-HOUR)
    await notifications.connection.execute(
        "UPDATE notifyqueue.notifications SET status = 'PROCESSING', attempt_count = 1, claim_token = $2, "
        "worker_id = $2, lease_expires_at = now() - interval '1 hour' WHERE id = $1",
        *(lost, uuid4()),
    )
    await notifications.insert("late", due_in=-HOUR, address="late@example.com", at_most_once=True)
    for name in ("again", "never", "twice", "twice"):
        await stub.ScheduleNotification(request(str(uuid4()), f"{name}@example.com"))

    await seen.until(m.RPC_TIME, SCHEDULE, "OK", "", least=4)
    await seen.until(m.ACCEPTED, "EMAIL", least=4)
    await seen.until(m.GROUP_SIZE, "accept")
    await seen.until(m.GROUP_WAIT, "mark_sent")
    await seen.until(m.GROUP_TIME, "end_unsent")
    await seen.until(m.CLAIMED, "EMAIL", least=4)
    await seen.until(m.CLAIM_TIME, "EMAIL")
    await seen.until(m.LATENCY, "EMAIL", "accepted")
    await seen.until(m.LATENCY, "EMAIL", "due")
    await seen.until(m.PROVIDER_TIME, "smtp", "ACCEPTED")
    await seen.until(m.OUTCOMES, "EMAIL", "smtp", "TRANSIENT", "451-4.4.1")
    await seen.until(m.OUTCOMES, "EMAIL", "smtp", "PERMANENT_MESSAGE", m.OTHER)
    await seen.until(m.RETRIES, "EMAIL", "FAILED")
    await seen.until(m.UNSENT, "EMAIL", "MESSAGE_REJECTED")
    await seen.until(m.WAITING, "EMAIL")
    await seen.until(m.RECOVERED, "EMAIL")
    await seen.until(m.WEBHOOKS, "retry", "STATUS")
    await seen.until(m.WEBHOOK_TIME, "retry")
    await seen.until(m.CONCURRENCY, "EMAIL")
    await eventually(lambda: bool(reader.read(m.DEPTH) and reader.read(m.FINDINGS)))  # the scheduler reads by itself

    provider.gate.clear()
    await stub.ScheduleNotification(request("held", "held@example.com"))
    await seen.until(m.IN_FLIGHT, "EMAIL")
    await notifications.connection.execute(
        "UPDATE notifyqueue.notifications SET claim_token = gen_random_uuid() WHERE status = 'PROCESSING'"
    )
    provider.gate.set()
    await seen.until(m.LOST, "EMAIL")

    provider.otherwise = Outcome(Answer.TRANSIENT, "421-anna_example.com")
    for number in range(8):
        await stub.ScheduleNotification(request(f"down-{number}", f"down-{number}@example.com"))
    await seen.until(m.BREAKER_CHANGES, "EMAIL", "open")

    await worker.drain(10)
    await seen.until(m.DRAINING)
    told = {(line["event"], line.get("code") or line.get("cause")) for line in logged}
    assert {("job.retry", "451-4.4.1"), ("job.fail", "550-other"), ("breaker.opened", "421-other")} <= told
    assert "anna" not in str(logged)
    assert {*m.METRICS} - seen.metrics == {*GAUGES.values(), m.FINDINGS, m.RELEASED, m.DROPPED}, "elsewhere"


# --- those that a scheduler reads


async def plant(tables: Notifications) -> None:
    """Something of everything."""
    execute = tables.connection.execute
    await tables.insert_many(3, priority=3, due_in=-HOUR)
    await tables.insert("suspect", expiries=2)
    await tables.insert("waits", address="waits@example.com", priority=1, waiting=True)
    await tables.insert("text", channel="SMS", address="+12025550191", due_in=-HOUR)
    await execute(
        "INSERT INTO notifyqueue.workers (id, phase, started_at, heartbeat_at, channels, concurrency, in_flight, sent, "
        "unsent) VALUES (gen_random_uuid(), 'RUNNING', now(), now(), '{EMAIL}', '{1}', '{0}', '{0}', '{0}')"
    )
    await execute(
        "UPDATE notifyqueue.lanes SET paused_at = now() - interval '2 hours', paused_by = 'key:1', pause_reason = 'x', "
        "opened_at = now(), cause = '503', probe_at = now(), probe_delay = '1 min', "
        "held_until = now() + interval '1 hour' WHERE channel = 'PUSH'"
    )
    for fanned_out in ("NULL", "now()"):
        await execute(
            "INSERT INTO notifyqueue.webhook_events (tenant_id, notification_id, status, redrive_count, attempt_count, "
            "channel, labels, occurred_at, fanned_out_at) VALUES ('default', gen_random_uuid(), 'SENT', 0, 1, 'EMAIL', "
            f"'{{}}', now() - interval '1 hour', {fanned_out})"
        )
    for enabled, reason in ((True, None), (False, "GONE"), (False, "DELETED")):
        await execute(
            "INSERT INTO notifyqueue.webhook_endpoints (tenant_id, url, sealed_secret, enabled, disabled_reason, "
            "next_due_at, deleted_at) VALUES ('default', 'http://127.0.0.1:9/', '', $1, $2, now() - $3::interval, "
            "CASE WHEN $2 = 'DELETED' THEN now() END)",
            *(enabled, reason, HOUR if enabled else 2 * HOUR),
        )
    await execute(
        "INSERT INTO notifyqueue.webhook_deliveries (event_id, endpoint_id, tenant_id, next_attempt_at) "
        "SELECT e.id, p.id, 'default', now() FROM notifyqueue.webhook_events AS e, notifyqueue.webhook_endpoints AS p "
        "WHERE e.fanned_out_at IS NOT NULL AND p.enabled"
    )


GAUGED: Mapping[tuple[Metric, tuple[str, ...]], float] = {
    (m.DEPTH, ("EMAIL", "HIGH", "due")): 3,
    (m.DEPTH, ("EMAIL", "LOW", "waiting")): 1,
    (m.DEPTH, ("EMAIL", "NORMAL", "due")): 0,
    (m.LAG, ("EMAIL", "HIGH")): 3600,
    (m.LAG, ("EMAIL", "LOW")): 0,
    (m.SUSPECTS, ("EMAIL",)): 1,
    (m.STRANDED, ("SMS",)): 1,
    (m.STRANDED, ("EMAIL",)): 0,
    (m.SERVING, ("EMAIL",)): 1,
    (m.SERVING, ("SMS",)): 0,
    (m.PAUSED, ("PUSH",)): 1,
    (m.PAUSED, ("SMS",)): 0,
    (m.BREAKER, ("PUSH",)): 1,
    (m.HELD, ("PUSH",)): 3600,
    (m.HELD, ("SMS",)): 0,
    (m.BACKLOG, ("unassigned",)): 1,
    (m.BACKLOG, ("pending",)): 1,
    (m.WEBHOOK_LAG, ("unassigned",)): 3600,
    (m.WEBHOOK_LAG, ("pending",)): 3600,
    (m.DISABLED, ()): 1,
    (m.SNAPSHOT, ()): 3,
    (m.FINDINGS, ("crash_suspects", "WARNING")): 1,
    (m.FINDINGS, ("held_snapshots", "WARNING")): 1,
    (m.FINDINGS, ("paused_lanes", "WARNING")): 1,
    (m.FINDINGS, ("stranded_lanes", "ERROR")): 0,
    (m.FINDINGS, ("unmade", "ERROR")): 0,
}


async def test_a_database_that_does_not_answer_is_said_once_and_what_was_read_stands_until_it_does(
    postgres: Postgres, database_url: str, notifications: Notifications, reader: Reader, stack: AsyncExitStack
) -> None:
    proxy = await stack.enter_async_context(TcpProxy("127.0.0.1", postgres.port))
    url = login(database_url, "scheduler").replace(str(postgres.port), str(proxy.port))
    timeouts = "statement_timeout=300ms&lock_timeout=0"
    gauges = Gauges(
        Store(await stack.enter_async_context(Database(f"{url}?{timeouts}", name="test"))),
        await stack.enter_async_context(Database(url, name="doctor")),
        Bounds(),
    )

    async def fail() -> None:
        assert [await gauges.read() for _ in range(2)] == [INTERVAL] * 2
        assert reader.value(m.DEPTH, "EMAIL", "HIGH", "due") == 0

    async def cut(_: bytes) -> None:
        raise ConnectionResetError

    with capture_logs() as logged:
        await gauges.read()
        await gauges.look()
        found = reader.read(m.FINDINGS)
        await notifications.insert("due", priority=3, due_in=-HOUR)
        async with notifications.connection.transaction():
            await notifications.connection.execute("LOCK TABLE notifyqueue.lanes IN ACCESS EXCLUSIVE MODE")
            await fail()
        await gauges.read()
        assert reader.value(m.DEPTH, "EMAIL", "HIGH", "due") == 1
        await notifications.connection.execute("DELETE FROM notifyqueue.notifications")
        await gauges.read()
        await notifications.insert("due", priority=3, due_in=-HOUR)
        proxy.on_question = cut
        await fail()
        assert await gauges.look() == DOCTOR_INTERVAL
        assert reader.read(m.FINDINGS) == found, "and a database that is away is no finding for each check"
    told = [(line["event"], line["exc_info"].__cause__) for line in logged]
    assert [event for event, _ in told] == [*["gauges.unread"] * 2, "findings.unread"], "once for each"
    assert isinstance(told[0][1], asyncpg.QueryCanceledError)


async def test_what_stands_in_the_database_is_what_the_gauges_say(
    database_url: str, notifications: Notifications, reader: Reader, stack: AsyncExitStack
) -> None:
    idle = await asyncpg.connect(login(database_url, "worker"))
    stack.push_async_callback(idle.close)
    await idle.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
    await plant(notifications)
    database = await stack.enter_async_context(Database(login(database_url, "scheduler"), name="test"))
    gauges = Gauges(Store(database), database, Bounds(transactions=0))
    assert (await gauges.read(), await gauges.look()) == (INTERVAL, DOCTOR_INTERVAL)

    said = {known: reader.value(known[0], *known[1]) for known in GAUGED}
    assert said.pop((m.SNAPSHOT, ())) >= GAUGED[m.SNAPSHOT, ()], "of somebody else's session, by a login like others"
    exact = {known: value for known, value in GAUGED.items() if known in said}
    assert said == pytest.approx(exact, abs=60)
    assert {known: said[known] for known in said if exact[known] < 100} == {
        known: value for known, value in exact.items() if value < 100
    }
    assert {name for labels in reader.read(m.FINDINGS) for key, name in labels if key == "finding"} == {
        check.name for check in (*CHECKS, UNMADE)
    }
    assert {metric for metric, _ in GAUGED} == {*GAUGES.values(), m.FINDINGS}

    async def held() -> float:
        await gauges.read()
        return reader.value(m.SNAPSHOT)

    before = await held()
    for _ in range(50):
        await notifications.connection.fetchval("SELECT pg_current_xact_id()")
    assert await held() >= before + 50, "it grows with what others do"
    await idle.execute("COMMIT")
    assert await held() < before, "and is gone with who held it"


# --- how they leave


def asked_for(patch: pytest.MonkeyPatch, exporters: str, *, scraped_at: int = 0, pushed_to: str) -> None:
    patch.setenv("OTEL_METRICS_EXPORTER", exporters)
    patch.setenv("OTEL_EXPORTER_PROMETHEUS_HOST", "127.0.0.1")
    patch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", str(scraped_at))
    patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", pushed_to)


def move() -> None:
    m.DRAINING.show({(): 0})
    m.LOST.add(2, "EMAIL")
    m.CLAIM_TIME.record(0.2, "EMAIL")


async def test_they_are_scraped_and_pushed_as_the_standards_variables_say(
    monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    async with Otlp() as collector:
        asked_for(monkeypatch, "prometheus,otlp", scraped_at=unused_tcp_port, pushed_to=collector.endpoint)
        async with configured("worker", uuid4()):
            move()
            async with (
                ClientSession() as session,
                session.get(f"http://127.0.0.1:{unused_tcp_port}/metrics") as answered,
            ):
                page = await answered.text()
        pushed = collector.measured()  # what is left is told on leaving
    assert 'notifyqueue_claims_lost_total{channel="EMAIL"} 2.0' in page
    assert 'notifyqueue_claim_duration_seconds_bucket{channel="EMAIL",le="0.25"} 1.0' in page
    assert {m.LOST.name, m.CLAIM_TIME.name} <= pushed
    assert not m.LOST.values(), "nobody listens any more"


async def test_a_collector_that_is_away_and_a_port_that_is_taken_stop_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "FLUSH", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        asked_for(monkeypatch, "prometheus,otlp", scraped_at=taken.getsockname()[1], pushed_to="http://127.0.0.1:9")
        async with asyncio.timeout(10), configured("worker", uuid4()):
            move()
            assert m.LOST.values() == {("EMAIL",): 2}


async def test_by_default_nothing_is_kept_and_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    for asked in (
        {},
        {"OTEL_METRICS_EXPORTER": "none"},
        {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"},
    ):
        with monkeypatch.context() as patch:
            for name, value in asked.items():
                patch.setenv(name, value)
            async with configured("worker", uuid4()):
                move()
                assert not m.LOST.values()


async def test_a_gauge_counts_up_to_its_bound_and_whoever_takes_nothing_hides_no_other(
    database_url: str, notifications: Notifications, reader: Reader, stack: AsyncExitStack
) -> None:
    await notifications.insert_many(SHOWN + 1, priority=3, due_in=-HOUR)
    await notifications.connection.execute(
        "INSERT INTO notifyqueue.webhook_endpoints (tenant_id, url, sealed_secret, enabled, disabled_reason, "
        "next_due_at) SELECT 'default', 'http://127.0.0.1:9/', '', n > $1, CASE WHEN n <= $1 THEN 'GONE' END, "
        "now() - CASE WHEN n > $1 THEN interval '1 hour' ELSE interval '2 hours' END "
        "FROM generate_series(1, $1 + 1) AS n",
        SHOWN,
    )
    database = await stack.enter_async_context(Database(login(database_url, "scheduler"), name="test"))
    await Gauges(Store(database), database, Bounds()).read()
    assert reader.value(m.DEPTH, "EMAIL", "HIGH", "due") == SHOWN
    assert reader.value(m.WEBHOOK_LAG, "pending") == pytest.approx(3600, abs=60)
