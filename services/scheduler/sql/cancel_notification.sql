-- cancel_notification: ends it as CANCELLED if nobody has taken it, and answers the status that decided. A claim that
-- is under way is waited for, and then wins.
--   $1 text  tenant   $2 uuid  notification   $3 text  actor   $4 text  why
WITH found AS MATERIALIZED (
  SELECT n.id, n.status
  FROM notifyqueue.notifications AS n
  WHERE n.tenant_id = $1 AND n.id = $2
  FOR UPDATE
), cancelled AS (
  UPDATE notifyqueue.notifications AS n
  SET status = 'CANCELLED', finished_at = now(), waiting = false, granted = false, revision = n.revision + 1
  FROM found
  WHERE n.id = found.id AND found.status = 'PENDING'
  RETURNING n.id
), noted AS (
  INSERT INTO notifyqueue.notification_history (notification_id, kind, actor, note)
  SELECT cancelled.id, 'CANCELLED', $3, $4
  FROM cancelled
)
SELECT found.status
FROM found
