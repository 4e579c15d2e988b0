-- remove_notifications: those of these notifications that have no event any more, with their contents and their history.
-- Whoever asks holds them.
--   $1 uuid[]  notifications, ascending
WITH removed AS (
  DELETE FROM notifyqueue.notifications AS n
  WHERE n.id = ANY (ARRAY(SELECT asked.id FROM unnest($1::uuid[]) AS asked (id)))  -- plain, it would be guessed large
    AND (SELECT e.id FROM notifyqueue.webhook_events AS e WHERE e.notification_id = n.id LIMIT 1) IS NULL
  RETURNING n.id
),
contents AS (
  DELETE FROM notifyqueue.notification_contents AS c
  WHERE c.notification_id = ANY (ARRAY(SELECT removed.id FROM removed))
  RETURNING c.notification_id
),
history AS (
  DELETE FROM notifyqueue.notification_history AS h
  WHERE h.notification_id = ANY (ARRAY(SELECT removed.id FROM removed))
  RETURNING h.id
)
SELECT (SELECT count(*) FROM removed)::int AS notifications, (SELECT count(*) FROM contents)::int AS contents,
  (SELECT count(*) FROM history)::int AS history
