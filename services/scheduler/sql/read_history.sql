-- read_history: what happened to a notification that is rare: the newest 1,000 entries, oldest first.
--   $1 uuid  notification
SELECT newest.kind, newest.happened_at, newest.attempt, newest.worker_id, newest.provider_code, newest.retry_delay,
  newest.actor, newest.note
FROM (
  SELECT h.id, h.kind, h.happened_at, h.attempt, h.worker_id, h.provider_code, h.retry_delay, h.actor, h.note
  FROM notifyqueue.notification_history AS h
  WHERE h.notification_id = $1
  ORDER BY h.id DESC
  LIMIT 1000
) AS newest
ORDER BY newest.id
