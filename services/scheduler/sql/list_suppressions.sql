-- list_suppressions: a tenant's suppressions that fit a filter, newest first; and, where they are fewer than asked for, the
-- last id that was looked at, if there may be more below it: a row of its own where nothing fits. The limit inside bounds
-- what a page reads, however little of it fits. recipient_store.py puts the condition that an index answers in place of
-- the marked lines, as in list_notifications.
--   $1 text  tenant   $2 uuid  ids below   $3 int  at most
--   $4 text  channel   $5 text  address, and   $6 text  what stands for it   $7 text  category   $8 text  source
--   $9 text  subscriber; null: any
WITH page AS MATERIALIZED (
  SELECT s.id, s.channel, s.address, s.subscriber, s.category, s.source, s.code, s.created_by, s.created_at, s.erased
  FROM (
    SELECT s.id, s.channel, s.address, s.subscriber, s.category, s.source, s.code, s.created_by, s.created_at, s.erased
    FROM notifyqueue.suppressions AS s
    WHERE s.tenant_id = $1 AND s.id < $2
      -- leading condition
    ORDER BY s.id DESC
    LIMIT 10000
  ) AS s
  WHERE ($4::text IS NULL OR s.channel = $4)
    AND ($5::text IS NULL OR s.address IN (notifyqueue.suppressed_form($4, $5), $6))
    AND ($7::text IS NULL OR s.category = $7)
    AND ($8::text IS NULL OR s.source = $8)
    AND ($9::text IS NULL OR s.subscriber = $9)
  ORDER BY s.id DESC
  LIMIT $3
)
SELECT page.id, page.channel, page.address, page.subscriber, page.category, page.source, page.code,
  page.created_by AS actor, page.created_at, page.erased, (
    SELECT s.id
    FROM notifyqueue.suppressions AS s
    WHERE s.tenant_id = $1 AND s.id < $2
      -- leading condition
      AND (SELECT count(*) FROM page AS p) < $3
    ORDER BY s.id DESC
    LIMIT 1
    OFFSET 9999
  ) AS scan_end
FROM (VALUES (1)) AS always (row)
LEFT JOIN page ON true
ORDER BY page.id DESC
