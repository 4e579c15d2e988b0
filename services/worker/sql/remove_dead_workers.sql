-- remove_dead_workers: forgets workers that have given no sign of life for so long.
--   $1 interval  how long
DELETE FROM notifyqueue.workers AS w
WHERE w.id = ANY (ARRAY(
  SELECT dead.id
  FROM notifyqueue.workers AS dead
  WHERE dead.heartbeat_at < now() - $1::interval
  ORDER BY dead.id
  LIMIT 1000
  FOR UPDATE SKIP LOCKED
))
RETURNING w.id
