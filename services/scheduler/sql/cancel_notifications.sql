-- cancel_notifications: ends as CANCELLED those of these that nobody has taken, and answers how many. Rows are taken one
-- by one in array order and by key (OFFSET 0 keeps the planner from turning the lookup into a join), and the status is
-- tested on the locked row. A claim that is under way is waited for, and then wins; after a lock timeout store.py asks
-- again, with SKIP LOCKED.
--   $1 text  tenant   $2 uuid[]  notifications, ascending   $3 text  actor   $4 text  why
WITH found AS MATERIALIZED (
  SELECT locked.id
  FROM unnest($2::uuid[]) AS asked (id)
  CROSS JOIN LATERAL (
    SELECT n.id, n.status
    FROM notifyqueue.notifications AS n
    WHERE n.tenant_id = $1 AND n.id = asked.id
    FOR UPDATE
    OFFSET 0
  ) AS locked
  WHERE locked.status = 'PENDING'
), cancelled AS (
  UPDATE notifyqueue.notifications AS n
  SET status = 'CANCELLED', finished_at = now(), waiting = false, granted = false, revision = n.revision + 1
  FROM found
  WHERE n.id = found.id
  RETURNING n.id
), noted AS (
  INSERT INTO notifyqueue.notification_history (notification_id, kind, actor, note)
  SELECT cancelled.id, 'CANCELLED', $3, $4
  FROM cancelled
)
SELECT count(*) AS cancelled
FROM cancelled
