"""Lanes share no fate: one provider that hangs or is down, and what the others and the backlog notice of it."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg
from pydantic import SecretStr

from benchmarks.ours import SECRET, NoOp
from benchmarks.report import percentile
from services.worker.__main__ import compose
from services.worker.providers import Answer, Handover, Message, Outcome, Provider
from services.worker.settings import Settings
from shared.process import Process

# Ten minutes in ten seconds: everything that waits in a lane is scaled alike.
SCALE = 60.0
OUTAGE = 600.0
BACKLOG = 10_000
MAX_ATTEMPTS = 5

INSERT = """
WITH written AS (
  INSERT INTO notifyqueue.notifications
    (tenant_id, idempotency_key, fingerprint, channel, address, priority, max_attempts, due_at, next_attempt_at)
  SELECT 'default', $1 || '-' || n, '', $2, 'someone-' || n, 2, 5, now(), now()
  FROM generate_series(1, $3) AS n
  RETURNING id
)
INSERT INTO notifyqueue.notification_contents (notification_id, content)
SELECT written.id, '{"text": "Hello"}' FROM written
"""

SPENT = """
SELECT count(*) FILTER (WHERE status = 'SENT') AS sent, count(*) FILTER (WHERE status = 'DEAD_LETTERED') AS dead,
  sum(attempt_count) - count(*) FILTER (WHERE status = 'SENT') AS spent
FROM notifyqueue.notifications
"""


class Hanging(NoOp):
    """Never answers."""

    name = "hanging"

    async def deliver(self, message: Message, handover: Handover) -> Outcome:
        handover.begin()
        self.count += 1
        await asyncio.Event().wait()
        raise AssertionError


class Failing(NoOp):
    """Refuses everything unread, or never answers, until it is told to work."""

    name = "failing"
    works = False

    def __init__(self, *, hangs: bool) -> None:
        super().__init__()
        self._hangs = hangs

    async def deliver(self, message: Message, handover: Handover) -> Outcome:
        if self.works:
            return await super().deliver(message, handover)
        if not self._hangs:
            return Outcome(Answer.TRANSIENT, code="down")
        handover.begin()
        await asyncio.Event().wait()
        raise AssertionError


@asynccontextmanager
async def _worker(url: str, providers: Mapping[str, Provider], **settings: Any) -> AsyncIterator[None]:
    chosen = Settings(
        database_url=SecretStr(url),
        secret_key=SecretStr(SECRET),
        listen_address="127.0.0.1:20052",
        health_listen="127.0.0.1:20062",
        email_provider="mock",  # not asked: compose is given the providers
        **settings,
    )
    async with AsyncExitStack() as stack:
        await compose(Process("worker", chosen, stack), chosen, providers)
        yield


async def isolation(owner: str, url: str, count: int, samples: int) -> list[str]:
    """The SMS lane beside an email lane that is idle, and beside one whose provider hangs."""
    found = {}
    for name, neighbour in (("idle", NoOp()), ("hanging", Hanging())):
        connection = await asyncpg.connect(owner)
        sms = NoOp()
        if name == "hanging":
            await connection.execute(INSERT, "mail", "EMAIL", 1_000)
        # Short enough to pass while this is measured, again and again.
        async with _worker(url, {"EMAIL": neighbour, "SMS": sms}, email_provider_timeout=1.0):
            while name == "hanging" and neighbour.count < 64:
                await asyncio.sleep(0.01)
            delays = await _latencies(connection, sms, samples)
            sms.expect(count)
            await connection.execute(INSERT, "sms", "SMS", count)
            began = time.monotonic()
            await connection.execute("NOTIFY notifyqueue_lane_sms")
            await sms.reached.wait()
            found[name] = count / (time.monotonic() - began), percentile(delays, 50), percentile(delays, 99)
        await connection.close()
        await empty(owner)
    lines = ["SMS lane, beside an email lane that is", f"{'':<40} {'idle':>10} {'hanging':>10} {'ratio':>7}"]
    for index, (name, factor, unit) in enumerate(
        (("drained", 1.0, "per second"), ("due to provider, p50", 1e3, "ms"), ("due to provider, p99", 1e3, "ms"))
    ):
        idle, hanging = found["idle"][index] * factor, found["hanging"][index] * factor
        lines.append(f"{name:<40} {idle:>10,.1f} {hanging:>10,.1f} {hanging / idle:>7.2f}  {unit}")
    return lines


async def _latencies(connection: "asyncpg.Connection[asyncpg.Record]", provider: NoOp, samples: int) -> list[float]:
    found = []
    for number in range(samples):
        provider.expect(1)
        began = time.monotonic()
        await connection.execute(INSERT, f"one-{number}", "SMS", 1)
        await connection.execute("NOTIFY notifyqueue_lane_sms")
        await provider.reached.wait()
        found.append(time.monotonic() - began)
    return found


async def outage(owner: str, url: str, *, hangs: bool) -> list[str]:
    """A backlog whose provider is down for what would be ten minutes."""
    connection = await asyncpg.connect(owner)
    await connection.execute(INSERT, "mail", "EMAIL", BACKLOG)
    provider = Failing(hangs=hangs)
    provider.expect(BACKLOG)
    scaled = {"retry_base": 2 / SCALE, "retry_cap": 900 / SCALE, "probe_base": 5 / SCALE, "probe_cap": 60 / SCALE}
    timeouts = {"email_provider_timeout": 30 / SCALE, "poll_interval": 5 / SCALE}
    async with _worker(url, {"EMAIL": provider}, **scaled, **timeouts):
        await asyncio.sleep(OUTAGE / SCALE)
        provider.works = True
        began = time.monotonic()
        await provider.reached.wait()
        while await connection.fetchval("SELECT count(*) FROM notifyqueue.notifications WHERE finished_at IS NULL"):
            await asyncio.sleep(0.01)
        healed = time.monotonic() - began
    row = await connection.fetchrow(SPENT)
    openings = await connection.fetchval("SELECT opening FROM notifyqueue.lanes WHERE channel = 'EMAIL'")
    await connection.close()
    await empty(owner)
    assert row is not None
    share = row["spent"] / (BACKLOG * MAX_ATTEMPTS)
    how = "never answers" if hangs else "refuses all"
    return [
        f"{BACKLOG:,} mails, provider {how} for what would be {OUTAGE / 60:.0f} minutes (1/{SCALE:.0f} of the time):",
        f"  dead-lettered {row['dead']}, sent {row['sent']:,}, attempts spent {row['spent']} ({share:.2%} of all),",
        f"  breaker opened {openings} time(s), all sent {healed:.1f} s after it came back",
    ]


async def empty(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(
        "TRUNCATE notifyqueue.notifications, notifyqueue.notification_contents, notifyqueue.notification_history, "
        "notifyqueue.webhook_events, notifyqueue.webhook_deliveries, notifyqueue.lane_history, "
        "notifyqueue.recipient_gates, notifyqueue.recipient_reservations, notifyqueue.status_deltas, "
        "notifyqueue.status_totals"
    )
    await connection.execute(
        "UPDATE notifyqueue.lanes SET opening = 0, opened_at = NULL, cause = NULL, probe_at = NULL, "
        "probe_delay = NULL, probe_token = NULL"
    )
    await connection.close()
