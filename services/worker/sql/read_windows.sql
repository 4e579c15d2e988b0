-- read_windows: who holds a slot of these recipients now, on whatever channel, and whether anybody waits at this key. A
-- slot is held by a start that is still in the window, and by a grant until it is used; `stalled` are grants in another
-- lane, which nobody uses while that is stopped or no worker serves it (as in read_workers). A start is stamped before its
-- call, which comes up to `lateness` later: by so much the window is longer here, so that no calls lie closer together
-- than they may.
--   $1 text[]  tenants   $2 text[]  limit keys, whose locks are ours
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now)
SELECT asked.tenant_id, asked.limit_key, rule.recipient_limit, rule.length, rule.lateness,
  held.granted, held.stalled,
  started.ids AS started, started.ages,
  (
    SELECT n.id
    FROM notifyqueue.notifications AS n
    WHERE n.waiting AND n.tenant_id = asked.tenant_id AND n.limit_key = asked.limit_key
    LIMIT 1
  ) IS NOT NULL AS queue
FROM clock
CROSS JOIN unnest($1::text[], $2::text[]) AS asked (tenant_id, limit_key)
CROSS JOIN LATERAL (
  SELECT t.recipient_limit, t.recipient_window + part.lateness AS length, part.lateness
  FROM notifyqueue.tenants AS t
  CROSS JOIN LATERAL (SELECT least(t.recipient_window / 10, interval '1 second') AS lateness) AS part
  WHERE t.id = asked.tenant_id
  OFFSET 0
) AS rule
CROSS JOIN LATERAL (  -- each key by itself: a condition on several would lose its index while the tables are empty
  SELECT coalesce(array_agg(called.id), '{}') AS granted,
    coalesce(array_agg(called.id) FILTER (
      WHERE mine.limit_key <> asked.limit_key AND called.status = 'PENDING' AND NOT EXISTS (
        SELECT
        FROM notifyqueue.lanes AS l
        JOIN notifyqueue.workers AS w ON l.channel = ANY (w.channels)
        WHERE l.channel = called.channel AND l.paused_at IS NULL AND l.opened_at IS NULL AND l.held_until <= clock.now
          AND w.heartbeat_at > clock.now - interval '15 seconds' AND w.phase = 'RUNNING'
      )
    ), '{}') AS stalled
  FROM unnest(notifyqueue.slot_keys(asked.limit_key)) AS mine (limit_key)
  CROSS JOIN LATERAL (
    SELECT n.id, n.status, n.channel
    FROM notifyqueue.notifications AS n
    WHERE n.granted AND n.tenant_id = asked.tenant_id AND n.limit_key = mine.limit_key
    OFFSET 0
  ) AS called
) AS held
CROSS JOIN LATERAL (
  SELECT coalesce(array_agg(start.notification_id ORDER BY start.started_at), '{}') AS ids,
    coalesce(array_agg(clock.now - start.started_at ORDER BY start.started_at), '{}') AS ages
  FROM unnest(notifyqueue.slot_keys(asked.limit_key)) AS mine (limit_key)
  CROSS JOIN LATERAL (
    SELECT r.notification_id, r.started_at
    FROM notifyqueue.recipient_reservations AS r
    WHERE r.tenant_id = asked.tenant_id AND r.limit_key = mine.limit_key AND r.started_at > clock.now - rule.length
    OFFSET 0
  ) AS start
) AS started
