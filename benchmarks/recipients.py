"""One recipient with 100,000 at its gate: what all the others notice of it."""

import time
from datetime import timedelta

import asyncpg

from benchmarks import lanes, ours
from benchmarks.report import Share

WAITING = 100_000
CONCURRENCY = 64

LIMIT = "UPDATE notifyqueue.tenants SET recipient_limit = $1, recipient_window = $2 WHERE id = 'default'"

# Its only slot is taken for an hour; its gate is due, so that it is looked at.
HOT = """
WITH waiting AS (
  INSERT INTO notifyqueue.notifications (
    tenant_id, idempotency_key, fingerprint, channel, address, limit_key, priority, max_attempts, due_at,
    next_attempt_at, waiting
  )
  SELECT 'default', 'hot-' || n, '', 'EMAIL', 'hot', 'EMAIL hot', 1 + n % 3, 5, now(), now(), true
  FROM generate_series(1, $1) AS n
), gate AS (
  INSERT INTO notifyqueue.recipient_gates (tenant_id, limit_key, channel, opens_at)
  VALUES ('default', 'EMAIL hot', 'EMAIL', now())
)
INSERT INTO notifyqueue.recipient_reservations (notification_id, tenant_id, limit_key, started_at, leaves_at)
VALUES (gen_random_uuid(), 'default', 'EMAIL hot', now(), now() + interval '1 hour')
"""


async def beside_a_hot_one(owner: str, url: str, count: int) -> list[str]:
    """`count` notifications, each to an address of its own, under a limit of one an hour; twice each, in turn."""
    connection = await asyncpg.connect(owner)
    await connection.execute(LIMIT, 1, timedelta(hours=1))
    shares = []
    for _ in range(2):
        found = {}
        for hot in (0, WAITING):
            if hot:
                await connection.execute(HOT, hot)
            found[hot] = await _drained_per_second(connection, url, count)
            await lanes.empty(owner)
        shares.append(Share("drained, others' addresses", found[0], found[WAITING], "per second"))
    await connection.execute(LIMIT, None, None)
    await connection.close()
    title = f"{count:,} addresses under a limit, beside one recipient with so many at its gate"
    return [title, Share.header("none", f"{WAITING:,}"), *(share.line() for share in shares)]


async def _drained_per_second(connection: "asyncpg.Connection[asyncpg.Record]", url: str, count: int) -> float:
    provider = ours.NoOp()
    provider.expect(count)
    await connection.execute(lanes.INSERT, "other", "EMAIL", count)
    began = time.monotonic()
    async with ours.worker(url, provider, CONCURRENCY):
        await provider.reached.wait()
        return count / (time.monotonic() - began)
