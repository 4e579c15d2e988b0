-- read_lane_stats: how a tenant's lanes stand. Each count looks at no more than 10,001 entries of a class (`seen` is of
-- the class with most), so it is exact up to 10,000 and a lower bound beyond, and a flood of urgent ones does not hide how long the others have waited.
-- Suspects stand in an index of their own. `lag` is null where others' entries fill what is looked at. A lane is stranded
-- while something is due, waits at a gate, or is held past its lease, and no worker serves it that lives (as in
-- read_workers) and takes work. Who waits at a gate is in
-- an index of its own, by tenant and then by a limit key, which begins with the channel: so each tenant is looked up by
-- itself, and others' entries fill nothing.
--   $1 text  tenant; null: all
WITH RECURSIVE gated AS (  -- the tenants of whom somebody waits, found by one look each
  SELECT coalesce($1::text, (
    SELECT n.tenant_id FROM notifyqueue.notifications AS n WHERE n.waiting ORDER BY n.tenant_id, n.limit_key LIMIT 1
  )) AS tenant_id
  UNION ALL
  SELECT next.tenant_id
  FROM gated
  CROSS JOIN LATERAL (
    SELECT n.tenant_id
    FROM notifyqueue.notifications AS n
    WHERE n.waiting AND n.tenant_id > gated.tenant_id AND $1::text IS NULL
    ORDER BY n.tenant_id, n.limit_key  -- an order that only the gates' index has
    LIMIT 1
  ) AS next
), served AS MATERIALIZED (
  SELECT DISTINCT unnest(w.channels) AS channel
  FROM notifyqueue.workers AS w
  WHERE w.heartbeat_at > clock_timestamp() - interval '15 seconds' AND w.phase = 'RUNNING'
)
SELECT lane.channel, least(gates.seen, 10000) AS waiting, gates.seen > 10000 AS waiting_bounded,
  least(due.mine, 10000) AS due, greatest(due.seen, due.mine) > 10000 AS due_bounded,
  least(later.mine, 10000) AS scheduled, greatest(later.seen, later.mine) > 10000 AS scheduled_bounded,
  least(held.mine, 10000) AS processing, held.seen > 10000 AS processing_bounded,
  CASE WHEN due.oldest IS NULL AND due.seen > 10000 THEN NULL
    ELSE greatest(coalesce(now() - due.oldest, '0'), '0') END AS lag,
  (due.mine > 0 OR gates.seen > 0 OR held.expired > 0)
    AND NOT EXISTS (SELECT FROM served WHERE served.channel = lane.channel) AS stranded
FROM (VALUES ('EMAIL'), ('SMS'), ('PUSH')) AS lane (channel)
CROSS JOIN LATERAL (
  SELECT greatest(
      count(*) FILTER (WHERE n.class = 3), count(*) FILTER (WHERE n.class = 2), count(*) FILTER (WHERE n.class = 1),
      count(*) FILTER (WHERE n.class = 0)
    ) AS seen,
    count(*) FILTER (WHERE $1::text IS NULL OR n.tenant_id = $1) AS mine,
    min(n.next_attempt_at) FILTER (WHERE $1::text IS NULL OR n.tenant_id = $1) AS oldest
  FROM (
    (
      SELECT n.tenant_id, n.next_attempt_at, 0 AS class
      FROM notifyqueue.notifications AS n
      WHERE n.status = 'PENDING' AND NOT n.waiting AND n.expiries >= 2
        AND n.channel = lane.channel AND n.next_attempt_at <= now()
      ORDER BY n.next_attempt_at, n.id
      LIMIT 10001
    )
    UNION ALL
    SELECT next.tenant_id, next.next_attempt_at, class.priority
    FROM (VALUES (3), (2), (1)) AS class (priority)
    CROSS JOIN LATERAL (
      SELECT n.tenant_id, n.next_attempt_at
      FROM notifyqueue.notifications AS n
      WHERE n.status = 'PENDING' AND NOT n.waiting AND n.expiries < 2
        AND n.channel = lane.channel AND n.priority = class.priority AND n.next_attempt_at <= now()
      ORDER BY n.next_attempt_at, n.id
      LIMIT 10001
    ) AS next
  ) AS n
) AS due
CROSS JOIN LATERAL (
  SELECT greatest(
      count(*) FILTER (WHERE n.class = 3), count(*) FILTER (WHERE n.class = 2), count(*) FILTER (WHERE n.class = 1),
      count(*) FILTER (WHERE n.class = 0)
    ) AS seen,
    count(*) FILTER (WHERE $1::text IS NULL OR n.tenant_id = $1) AS mine
  FROM (
    (
      SELECT n.tenant_id, 0 AS class
      FROM notifyqueue.notifications AS n
      WHERE n.status = 'PENDING' AND NOT n.waiting AND n.expiries >= 2
        AND n.channel = lane.channel AND n.next_attempt_at > now()
      ORDER BY n.next_attempt_at, n.id
      LIMIT 10001
    )
    UNION ALL
    SELECT next.tenant_id, class.priority
    FROM (VALUES (3), (2), (1)) AS class (priority)
    CROSS JOIN LATERAL (
      SELECT n.tenant_id
      FROM notifyqueue.notifications AS n
      WHERE n.status = 'PENDING' AND NOT n.waiting AND n.expiries < 2
        AND n.channel = lane.channel AND n.priority = class.priority AND n.next_attempt_at > now()
      ORDER BY n.next_attempt_at, n.id
      LIMIT 10001
    ) AS next
  ) AS n
) AS later
CROSS JOIN LATERAL (
  SELECT count(*) AS seen,
    count(*) FILTER (WHERE ($1::text IS NULL OR n.tenant_id = $1) AND n.channel = lane.channel) AS mine,
    count(*) FILTER (
      WHERE ($1::text IS NULL OR n.tenant_id = $1) AND n.channel = lane.channel AND n.lease_expires_at < now()
    ) AS expired
  FROM (
    SELECT n.tenant_id, n.channel, n.lease_expires_at
    FROM notifyqueue.notifications AS n
    WHERE n.status = 'PROCESSING'
    ORDER BY n.lease_expires_at
    LIMIT 10001
  ) AS n
) AS held
CROSS JOIN LATERAL (
  SELECT count(*) AS seen
  FROM (
    SELECT one.tenant_id
    FROM gated
    CROSS JOIN LATERAL (
      SELECT n.tenant_id
      FROM notifyqueue.notifications AS n
      WHERE n.waiting AND n.tenant_id = gated.tenant_id
        AND n.limit_key >= lane.channel || ' ' AND n.limit_key < lane.channel || '!'
      ORDER BY n.limit_key
      LIMIT 10001
    ) AS one
    LIMIT 10001
  ) AS n
) AS gates
