-- find_dead: up to 1,000 notifications of a tenant that ended with this status before a time, after an id; they are
-- held, and what others hold is passed over. With each, all its events, and whether each of them was fanned out and has
-- no delivery under way. shared/purge.py puts the other status in place of FAILED.
--   $1 text  tenant   $2 uuid  ids above   $3 timestamptz  before   $4 interval  or ended longer ago than this
WITH dead AS MATERIALIZED (
  SELECT n.id
  FROM notifyqueue.notifications AS n
  WHERE n.tenant_id = $1 AND n.status = 'FAILED' AND n.id > $2
    AND n.finished_at < coalesce($3::timestamptz, now() - $4::interval)
  ORDER BY n.id
  LIMIT 1000
  FOR UPDATE SKIP LOCKED
)
SELECT dead.id, event.ids AS event_ids, event.closed
FROM dead
CROSS JOIN LATERAL (
  SELECT coalesce(array_agg(one.id), '{}') AS ids, coalesce(bool_and(one.closed), true) AS closed
  FROM (
    SELECT e.id, e.fanned_out_at IS NOT NULL AND open.id IS NULL AS closed
    FROM notifyqueue.webhook_events AS e
    LEFT JOIN LATERAL (
      SELECT d.id
      FROM notifyqueue.webhook_deliveries AS d
      WHERE d.event_id = e.id AND d.delivered_at IS NULL AND d.given_up_at IS NULL
      LIMIT 1
    ) AS open ON true
    WHERE e.notification_id = dead.id
  ) AS one
) AS event
ORDER BY dead.id
