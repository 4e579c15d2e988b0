-- erase_notifications: up to so many of a subscriber's notifications, from an id on, lose their content, their address and
-- his name, and answers how each stood and where it was to go. What no worker has taken is cancelled; what one has is not
-- tried again, for there is nothing left to send. Ids, statuses and histories stay. Rows are taken as in
-- cancel_notifications: a claim that is under way is waited for, and then has it.
--   $1 text  tenant   $2 text  subscriber   $3 uuid  ids above   $4 int  at most   $5 text  actor   $6 text  why
WITH asked AS MATERIALIZED (
  SELECT n.id
  FROM notifyqueue.notifications AS n
  WHERE n.tenant_id = $1 AND n.subscriber = $2 AND n.id > $3
  ORDER BY n.id
  LIMIT $4
), found AS MATERIALIZED (
  SELECT locked.id, locked.status, locked.channel, locked.address
  FROM asked
  CROSS JOIN LATERAL (
    SELECT n.id, n.status, n.channel, n.address, n.subscriber
    FROM notifyqueue.notifications AS n
    WHERE n.id = asked.id
    FOR UPDATE
    OFFSET 0
  ) AS locked
  WHERE locked.subscriber = $2
), cancelled AS (
  UPDATE notifyqueue.notifications AS n
  SET status = 'CANCELLED', finished_at = now(), waiting = false, granted = false, limit_key = NULL, address = NULL,
    subscriber = NULL, revision = n.revision + 1
  FROM found
  WHERE n.id = found.id AND found.status = 'PENDING'
  RETURNING n.id
), noted AS (
  INSERT INTO notifyqueue.notification_history (notification_id, kind, actor, note)
  SELECT cancelled.id, 'CANCELLED', $5, $6
  FROM cancelled
), emptied AS (
  UPDATE notifyqueue.notifications AS n
  SET granted = false, limit_key = NULL, address = NULL, subscriber = NULL, revision = n.revision + 1
  FROM found
  WHERE n.id = found.id AND found.status <> 'PENDING'
), erased AS (
  DELETE FROM notifyqueue.notification_contents AS c
  WHERE c.notification_id = ANY (ARRAY(SELECT found.id FROM found))  -- a join would be guessed large
)
SELECT found.id, found.status, found.channel, found.address
FROM found
ORDER BY found.id
