-- expire_overdue: ends notifications that nobody took in time. One that may have been delivered did not expire: nobody
-- knows.
--   $1 int  at most so many; with a parameter it is planned for the table as it is, not as it once was
WITH overdue AS MATERIALIZED (
  SELECT n.id
  FROM notifyqueue.notifications AS n
  WHERE n.status = 'PENDING' AND n.expire_at <= now()
  ORDER BY n.expire_at
  LIMIT $1
  FOR UPDATE SKIP LOCKED
)
UPDATE notifyqueue.notifications AS n
SET status = CASE WHEN n.maybe_delivered THEN 'FAILED' ELSE 'EXPIRED' END,
  failure_reason = CASE WHEN n.maybe_delivered THEN 'OUTCOME_UNKNOWN' END,
  finished_at = now(), waiting = false, granted = false, revision = n.revision + 1
FROM overdue
WHERE n.id = overdue.id AND n.status = 'PENDING'
RETURNING n.channel, n.failure_reason
