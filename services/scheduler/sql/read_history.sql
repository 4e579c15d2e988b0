-- read_history: what happened to a notification that is rare, oldest first.
--   $1 uuid  notification
SELECT h.kind, h.happened_at, h.attempt, h.worker_id, h.provider_code, h.retry_delay, h.actor, h.note
FROM notifyqueue.notification_history AS h
WHERE h.notification_id = $1
ORDER BY h.id
