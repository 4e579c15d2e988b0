-- list_notifications: a tenant's notifications that fit a filter, newest first; and, where they are fewer than asked for,
-- the last id that was looked at, if there may be more below it: a row of its own where nothing fits. The limit inside
-- bounds what a page reads, however little of it fits. One statement, so that both see the same rows, whatever is
-- accepted or erased meanwhile. Where the filter names what an index holds, store.py puts that condition in place of
-- the marked lines, so that the index leads.
--   $1 text  tenant   $2 uuid  ids below   $3 uuid  ids from   $4 int  at most
--   $5 text  status   $6 text  channel   $7 text  address   $8 text  reference
--   $9 timestamptz  created since   $10 timestamptz  created before; null: any
WITH page AS MATERIALIZED (
  SELECT n.id, n.idempotency_key, n.channel, n.address, n.priority, n.status, n.failure_reason, n.provider_code,
    n.provider_message_id, n.due_at, n.next_attempt_at, n.expire_at, n.attempt_count, n.max_attempts, n.at_most_once,
    n.category, n.reference, n.labels, n.template, n.template_version,
    n.redrive_count, n.revision, n.created_at, n.finished_at
  FROM (
    SELECT n.id, n.idempotency_key, n.channel, n.address, n.priority, n.status, n.failure_reason, n.provider_code,
      n.provider_message_id, n.due_at, n.next_attempt_at, n.expire_at, n.attempt_count, n.max_attempts, n.at_most_once,
      n.category, n.reference, n.labels, n.template, n.template_version,
      n.redrive_count, n.revision, n.created_at, n.finished_at
    FROM notifyqueue.notifications AS n
    WHERE n.tenant_id = $1 AND n.id < $2 AND n.id >= $3
      -- leading condition
    ORDER BY n.id DESC
    LIMIT 10000
  ) AS n
  WHERE ($5::text IS NULL OR n.status = $5)
    AND ($6::text IS NULL OR n.channel = $6)
    AND (
      $7::text IS NULL
      OR notifyqueue.suppressed_form(n.channel, n.address) = notifyqueue.suppressed_form($6, $7)
    )
    AND ($8::text IS NULL OR n.reference = $8)
    AND ($9::timestamptz IS NULL OR n.created_at >= $9)
    AND ($10::timestamptz IS NULL OR n.created_at < $10)
  ORDER BY n.id DESC
  LIMIT $4
)
SELECT page.id, page.idempotency_key, page.channel, page.address, page.priority, page.status, page.failure_reason,
  page.provider_code, page.provider_message_id, page.due_at, page.next_attempt_at, page.expire_at, page.attempt_count,
  page.max_attempts, page.at_most_once, page.category, page.reference, page.labels, page.template, page.template_version,
  page.redrive_count, page.revision,
  page.created_at, page.finished_at,
  (
    SELECT n.id
    FROM notifyqueue.notifications AS n
    WHERE n.tenant_id = $1 AND n.id < $2 AND n.id >= $3
      -- leading condition
      AND (SELECT count(*) FROM page AS p) < $4
    ORDER BY n.id DESC
    LIMIT 1
    OFFSET 9999
  ) AS scan_end
FROM (VALUES (1)) AS always (row)
LEFT JOIN page ON true
ORDER BY page.id DESC
