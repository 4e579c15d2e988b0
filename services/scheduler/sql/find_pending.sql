-- find_pending: of the newest 10,000 of a tenant's notifications, the PENDING ones that fit a filter, newest first; and
-- the last id that was looked at, if there may be more below it. store.py puts the condition that an index answers in
-- place of the marked line.
--   $1 text  tenant   $2 uuid  ids below   $3 uuid  ids from
--   $4 text  channel   $5 text  address   $6 text  reference
--   $7 timestamptz  created since   $8 timestamptz  created before; null: any
WITH scanned AS MATERIALIZED (
  SELECT n.id, n.status = 'PENDING'
    AND ($4::text IS NULL OR n.channel = $4)
    AND (
      $5::text IS NULL
      OR notifyqueue.suppressed_form(n.channel, n.address) = notifyqueue.suppressed_form($4, $5)
    )
    AND ($6::text IS NULL OR n.reference = $6)
    AND ($7::timestamptz IS NULL OR n.created_at >= $7)
    AND ($8::timestamptz IS NULL OR n.created_at < $8) AS fits
  FROM notifyqueue.notifications AS n
  WHERE n.tenant_id = $1 AND n.id < $2 AND n.id >= $3
    -- leading condition
  ORDER BY n.id DESC
  LIMIT 10000
)
SELECT coalesce(array_agg(s.id ORDER BY s.id DESC) FILTER (WHERE s.fits), '{}') AS ids,
  (array_agg(s.id ORDER BY s.id DESC))[10000] AS scan_end
FROM scanned AS s
