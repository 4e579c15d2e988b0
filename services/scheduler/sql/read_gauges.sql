-- read_gauges: how the queue stands, for its metrics: a row for each gauge and its attributes. Each count looks at so
-- many entries of an index, and stops there. Suspects stand in an index of their own. A lane is stranded while
-- something is due, waits, or is held past its lease, and no worker serves it that lives (as in read_workers) and takes
-- work. Of who waits it looks at so many of each lane; a limit key begins with the channel.
--   $1 bigint  so many; with a parameter it is planned for the tables as they are, not as they once were
WITH RECURSIVE due AS MATERIALIZED (
  SELECT lane.channel, class.name, looked.seen, looked.oldest
  FROM notifyqueue.lanes AS lane
  CROSS JOIN (VALUES (3, 'HIGH'), (2, 'NORMAL'), (1, 'LOW')) AS class (priority, name)
  CROSS JOIN LATERAL (
    SELECT count(*) AS seen, min(next.next_attempt_at) AS oldest
    FROM (
      SELECT n.next_attempt_at
      FROM notifyqueue.notifications AS n
      WHERE n.status = 'PENDING' AND NOT n.waiting AND n.expiries < 2
        AND n.channel = lane.channel AND n.priority = class.priority AND n.next_attempt_at <= now()
      ORDER BY n.next_attempt_at, n.id
      LIMIT $1
    ) AS next
  ) AS looked
), suspects AS MATERIALIZED (
  SELECT lane.channel, looked.seen, looked.oldest
  FROM notifyqueue.lanes AS lane
  CROSS JOIN LATERAL (
    SELECT count(*) AS seen, min(next.next_attempt_at) AS oldest
    FROM (
      SELECT n.next_attempt_at
      FROM notifyqueue.notifications AS n
      WHERE n.status = 'PENDING' AND NOT n.waiting AND n.expiries >= 2 AND n.channel = lane.channel
      ORDER BY n.next_attempt_at, n.id
      LIMIT $1
    ) AS next
  ) AS looked
), asking AS (  -- the tenants of whom somebody waits, found by one look each, as in read_lane_stats
  (SELECT n.tenant_id FROM notifyqueue.notifications AS n WHERE n.waiting ORDER BY n.tenant_id, n.limit_key LIMIT 1)
  UNION ALL
  SELECT next.tenant_id
  FROM asking
  CROSS JOIN LATERAL (
    SELECT n.tenant_id
    FROM notifyqueue.notifications AS n
    WHERE n.waiting AND n.tenant_id > asking.tenant_id
    ORDER BY n.tenant_id, n.limit_key
    LIMIT 1
  ) AS next
), gated AS MATERIALIZED (
  SELECT lane.channel, one.priority, count(*) AS seen
  FROM notifyqueue.lanes AS lane
  CROSS JOIN LATERAL (
    SELECT next.priority
    FROM asking
    CROSS JOIN LATERAL (
      SELECT n.priority
      FROM notifyqueue.notifications AS n
      WHERE n.waiting AND n.tenant_id = asking.tenant_id
        AND n.limit_key >= lane.channel || ' ' AND n.limit_key < lane.channel || '!'
      ORDER BY n.limit_key
      LIMIT $1
    ) AS next
    LIMIT $1
  ) AS one
  GROUP BY lane.channel, one.priority
), overdue AS MATERIALIZED (
  SELECT DISTINCT held.channel
  FROM (
    SELECT n.channel
    FROM notifyqueue.notifications AS n
    WHERE n.status = 'PROCESSING' AND n.lease_expires_at < now()
    ORDER BY n.lease_expires_at
    LIMIT 1000
  ) AS held
), served AS MATERIALIZED (
  SELECT lane.channel, count(w.id) AS workers
  FROM notifyqueue.lanes AS lane
  LEFT JOIN notifyqueue.workers AS w ON lane.channel = ANY (w.channels) AND w.phase = 'RUNNING'
    AND w.heartbeat_at > clock_timestamp() - interval '15 seconds'
  GROUP BY lane.channel
)
SELECT 'depth' AS gauge, ARRAY[due.channel, due.name, 'due'] AS attributes, due.seen::float8 AS value
FROM due
UNION ALL
SELECT 'depth', ARRAY[lane.channel, class.name, 'waiting'], coalesce(gated.seen, 0)
FROM notifyqueue.lanes AS lane
CROSS JOIN (VALUES (3, 'HIGH'), (2, 'NORMAL'), (1, 'LOW')) AS class (priority, name)
LEFT JOIN gated ON gated.channel = lane.channel AND gated.priority = class.priority
UNION ALL
SELECT 'lag', ARRAY[due.channel, due.name], coalesce(extract(epoch FROM now() - due.oldest), 0)
FROM due
UNION ALL
SELECT 'suspects', ARRAY[suspects.channel], suspects.seen
FROM suspects
UNION ALL
SELECT 'stranded', ARRAY[served.channel], (
    served.workers = 0 AND (
      EXISTS (SELECT FROM due WHERE due.channel = served.channel AND due.seen > 0)
      OR EXISTS (SELECT FROM suspects WHERE suspects.channel = served.channel AND suspects.oldest <= now())
      OR EXISTS (SELECT FROM gated WHERE gated.channel = served.channel)
      OR EXISTS (SELECT FROM overdue WHERE overdue.channel = served.channel)
    )
  )::int
FROM served
UNION ALL
SELECT 'serving', ARRAY[served.channel], served.workers
FROM served
UNION ALL
SELECT 'paused', ARRAY[lane.channel], (lane.paused_at IS NOT NULL)::int
FROM notifyqueue.lanes AS lane
UNION ALL
SELECT 'breaker', ARRAY[lane.channel], (lane.opened_at IS NOT NULL)::int
FROM notifyqueue.lanes AS lane
UNION ALL
SELECT 'held', ARRAY[lane.channel], greatest(coalesce(extract(epoch FROM nullif(lane.held_until, '-infinity') - now()), 0), 0)
FROM notifyqueue.lanes AS lane
UNION ALL
SELECT 'backlog', ARRAY['unassigned'], count(*)
FROM (
  SELECT e.id FROM notifyqueue.webhook_events AS e WHERE e.fanned_out_at IS NULL ORDER BY e.id LIMIT $1
) AS fresh
UNION ALL
SELECT 'backlog', ARRAY['pending'], count(*)
FROM (
  SELECT d.endpoint_id
  FROM notifyqueue.webhook_deliveries AS d
  WHERE d.delivered_at IS NULL AND d.given_up_at IS NULL
  ORDER BY d.endpoint_id, d.next_attempt_at  -- as in read_webhook_stats
  LIMIT $1
) AS open
UNION ALL
SELECT 'webhook_lag', ARRAY['unassigned'], coalesce(extract(epoch FROM now() - (
    SELECT e.occurred_at FROM notifyqueue.webhook_events AS e WHERE e.fanned_out_at IS NULL ORDER BY e.id LIMIT 1
  )), 0)
UNION ALL
SELECT 'webhook_lag', ARRAY['pending'], coalesce(extract(epoch FROM now() - min(endpoint.since)), 0)
FROM (
  SELECT greatest(e.next_due_at, e.paused_until) AS since
  FROM notifyqueue.webhook_endpoints AS e
  WHERE e.enabled AND e.next_due_at < now()
  ORDER BY e.next_due_at
  LIMIT 1000
) AS endpoint
WHERE endpoint.since < now()
UNION ALL
SELECT 'disabled', '{}', count(*)
FROM (
  SELECT e.id
  FROM notifyqueue.webhook_endpoints AS e
  WHERE NOT e.enabled AND e.deleted_at IS NULL
  ORDER BY e.id
  LIMIT $1
) AS gone
UNION ALL
SELECT 'snapshot', '{}', coalesce(max(held.xids), 0)
FROM (
  SELECT greatest(age(a.backend_xmin), age(a.backend_xid)) AS xids
  FROM pg_catalog.pg_stat_activity AS a
  WHERE a.usesysid IS NOT NULL  -- as in held_snapshots of the doctor
    AND (a.datname = current_database() OR a.datname IS NULL) AND a.pid <> pg_backend_pid()
  UNION ALL
  SELECT age(p.transaction) FROM pg_catalog.pg_prepared_xacts AS p WHERE p.database = current_database()
  UNION ALL
  SELECT greatest(age(s.xmin), age(s.catalog_xmin)) FROM pg_catalog.pg_replication_slots AS s
) AS held
