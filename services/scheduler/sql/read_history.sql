-- read_history: what happened to a notification that is rare: the newest 1,000 entries, oldest first; and what happened
-- to its lane while it was due, the newest 100 of that, with what it found there when it came.
--   $1 uuid  notification
WITH asked AS MATERIALIZED (
  SELECT n.channel, greatest(n.due_at, n.created_at) AS since, coalesce(n.finished_at, 'infinity') AS until
  FROM notifyqueue.notifications AS n
  WHERE n.id = $1
), before AS (  -- the last of each kind
  SELECT last.id, last.kind, last.happened_at, last.worker_id, last.cause, last.note
  FROM asked
  CROSS JOIN (VALUES ('LANE_PAUSED'), ('LANE_RESUMED'), ('BREAKER_OPENED'), ('BREAKER_CLOSED')) AS one (kind)
  CROSS JOIN LATERAL (
    SELECT l.id, l.kind, l.happened_at, l.worker_id, l.cause, l.note
    FROM notifyqueue.lane_history AS l
    WHERE l.channel = asked.channel AND l.kind = one.kind AND l.happened_at < asked.since
    ORDER BY l.happened_at DESC
    LIMIT 1
  ) AS last
), lane AS (
  SELECT began.id, began.kind, began.happened_at, began.worker_id, began.cause, began.note
  FROM before AS began
  LEFT JOIN before AS over ON over.id > began.id
    AND over.kind = CASE began.kind WHEN 'LANE_PAUSED' THEN 'LANE_RESUMED' ELSE 'BREAKER_CLOSED' END
  WHERE began.kind IN ('LANE_PAUSED', 'BREAKER_OPENED') AND over.id IS NULL
  UNION ALL
  (
    SELECT l.id, l.kind, l.happened_at, l.worker_id, l.cause, l.note
    FROM asked
    JOIN notifyqueue.lane_history AS l
      ON l.channel = asked.channel AND l.happened_at >= asked.since AND l.happened_at < asked.until
    ORDER BY l.happened_at DESC
    LIMIT 100
  )
), own AS (
  SELECT h.id, h.kind, h.happened_at, h.attempt, h.worker_id, h.provider_code, h.retry_delay, h.actor, h.note
  FROM notifyqueue.notification_history AS h
  WHERE h.notification_id = $1
  ORDER BY h.id DESC
  LIMIT 1000
)
SELECT e.kind, e.happened_at, e.attempt, e.worker_id, e.provider_code, e.retry_delay, e.actor, e.note
FROM (
  SELECT own.id, own.kind, own.happened_at, own.attempt, own.worker_id, own.provider_code, own.retry_delay, own.actor,
    own.note
  FROM own
  UNION ALL
  SELECT lane.id, lane.kind, lane.happened_at, 0, lane.worker_id, lane.cause, NULL, '', lane.note
  FROM lane
) AS e
ORDER BY e.happened_at, e.id
