"""What GetQueueStats costs beside notifications that have ended, however many."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from benchmarks import lanes, ours
from benchmarks.report import Share, percentile
from notifyqueue.v1 import scheduler_pb2, scheduler_pb2_grpc

OPEN = 1_000
CALLS = 100
WRITERS, GROUP = 2, 50_000

ENDED = """
WITH ended AS (
  INSERT INTO notifyqueue.notifications (
    tenant_id, idempotency_key, fingerprint, channel, address, priority, max_attempts, attempt_count, due_at,
    next_attempt_at, status, finished_at
  )
  SELECT 'default', 'ended-' || n, '', 'EMAIL', 'someone-' || n % 100000, 2, 5, 1, now(), now(), 'SENT', now()
  FROM generate_series($1::int, $2::int) AS n
  RETURNING id
), events AS (
  INSERT INTO notifyqueue.webhook_events (
    tenant_id, notification_id, status, redrive_count, attempt_count, channel, labels, occurred_at, fanned_out_at
  )
  SELECT 'default', ended.id, 'SENT', 0, 1, 'EMAIL', '{}', now(), now()
  FROM ended
  RETURNING id
)
INSERT INTO notifyqueue.webhook_deliveries (event_id, endpoint_id, tenant_id, attempt_count, delivered_at)
SELECT events.id, gen_random_uuid(), 'default', 1, now()
FROM events
"""

# What is no constraint's.
INDEXES = """
SELECT i.indexrelid::regclass::text AS name, pg_get_indexdef(i.indexrelid) AS definition
FROM pg_index AS i
WHERE i.indrelid = ANY (ARRAY[
    'notifyqueue.notifications', 'notifyqueue.webhook_events', 'notifyqueue.webhook_deliveries'
  ]::regclass[])
  AND i.indexrelid NOT IN (SELECT c.conindid FROM pg_constraint AS c)
ORDER BY i.indexrelid
"""


async def beside_finished(owner: str, url: str, count: int) -> list[str]:
    """Never analysed but by the server itself, as it comes to it."""
    connection = await asyncpg.connect(owner)
    found = []
    for ended in (0, count):
        async with _without_indexes(connection):
            await asyncio.gather(*(_end(owner, ended, writer) for writer in range(WRITERS)))
        await connection.execute(lanes.INSERT, f"open-{ended}", "SMS", OPEN)
        async with ours.scheduler(url) as stub:
            await _calls(stub, 10)  # connections and plans
            found.append(await _calls(stub, CALLS))
        await lanes.empty(owner)
    await connection.close()
    shares = [
        Share(f"GetQueueStats, p{n}", percentile(found[0], n) * 1e3, percentile(found[1], n) * 1e3, "ms")
        for n in (50, 99)
    ]
    title = f"Stats of {OPEN:,} that are due, beside so many that have ended"
    return [title, Share.header("none", f"{count:,}"), *(share.line() for share in shares)]


async def _end(owner: str, count: int, writer: int) -> None:
    """One writer's share of them."""
    connection = await asyncpg.connect(owner)
    for first in range(1 + writer * GROUP, count + 1, WRITERS * GROUP):
        await connection.execute(ENDED, first, min(first + GROUP - 1, count))
    await connection.close()


@asynccontextmanager
async def _without_indexes(connection: "asyncpg.Connection[asyncpg.Record]") -> AsyncIterator[None]:
    """Millions are written several times as fast, and what is made of them at the end is the same."""
    indexes = await connection.fetch(INDEXES)
    for index in indexes:
        await connection.execute(f"DROP INDEX {index['name']}")
    yield
    for index in indexes:
        await connection.execute(index["definition"])


async def _calls(stub: scheduler_pb2_grpc.SchedulerStub, count: int) -> list[float]:
    found = []
    for _ in range(count):
        began = time.monotonic()
        await stub.GetQueueStats(scheduler_pb2.GetQueueStatsRequest())
        found.append(time.monotonic() - began)
    return found
