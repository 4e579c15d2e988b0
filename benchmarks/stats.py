"""What GetQueueStats costs beside notifications that have ended, however many."""

import time

import asyncpg

from benchmarks import lanes, ours
from benchmarks.report import Share, percentile
from notifyqueue.v1 import scheduler_pb2, scheduler_pb2_grpc

OPEN = 1_000
CALLS = 100

ENDED = """
WITH ended AS (
  INSERT INTO notifyqueue.notifications (
    tenant_id, idempotency_key, fingerprint, channel, address, priority, max_attempts, attempt_count, due_at,
    next_attempt_at, status, finished_at
  )
  SELECT 'default', 'ended-' || n, '', 'EMAIL', 'someone-' || n % 100000, 2, 5, 1, now(), now(), 'SENT', now()
  FROM generate_series(1, $1) AS n
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


async def beside_finished(owner: str, url: str, count: int) -> list[str]:
    """Never analysed but by the server itself, as it comes to it."""
    connection = await asyncpg.connect(owner)
    found = []
    for ended in (0, count):
        await connection.execute(ENDED, ended)
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


async def _calls(stub: scheduler_pb2_grpc.SchedulerStub, count: int) -> list[float]:
    found = []
    for _ in range(count):
        began = time.monotonic()
        await stub.GetQueueStats(scheduler_pb2.GetQueueStatsRequest())
        found.append(time.monotonic() - began)
    return found
