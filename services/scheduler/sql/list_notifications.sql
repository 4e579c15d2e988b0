-- list_notifications: a tenant's notifications that fit a filter, newest first. The limit inside bounds what a page
-- reads, however little of it fits. Where the filter names what an index holds, store.py puts that condition in place
-- of the marked line, so that the index leads.
--   $1 text  tenant   $2 uuid  ids below   $3 uuid  ids from   $4 int  at most
--   $5 text  status   $6 text  channel   $7 text  address   $8 text  reference
--   $9 timestamptz  created since   $10 timestamptz  created before; null: any
SELECT n.id, n.idempotency_key, n.channel, n.address, n.priority, n.status, n.failure_reason, n.provider_code,
  n.provider_message_id, n.due_at, n.next_attempt_at, n.expire_at, n.attempt_count, n.max_attempts, n.at_most_once,
  n.category, n.reference, n.labels, n.redrive_count, n.revision, n.created_at, n.finished_at
FROM (
  SELECT n.id, n.idempotency_key, n.channel, n.address, n.priority, n.status, n.failure_reason, n.provider_code,
    n.provider_message_id, n.due_at, n.next_attempt_at, n.expire_at, n.attempt_count, n.max_attempts, n.at_most_once,
    n.category, n.reference, n.labels, n.redrive_count, n.revision, n.created_at, n.finished_at
  FROM notifyqueue.notifications AS n
  WHERE n.tenant_id = $1 AND n.id < $2 AND n.id >= $3
    -- leading condition
  ORDER BY n.id DESC
  LIMIT 10000
) AS n
WHERE ($5::text IS NULL OR n.status = $5)
  AND ($6::text IS NULL OR n.channel = $6)
  AND ($7::text IS NULL OR n.address = $7)
  AND ($8::text IS NULL OR n.reference = $8)
  AND ($9::timestamptz IS NULL OR n.created_at >= $9)
  AND ($10::timestamptz IS NULL OR n.created_at < $10)
ORDER BY n.id DESC
LIMIT $4
