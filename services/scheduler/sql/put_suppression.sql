-- put_suppression: sees to it that an address or a subscriber is suppressed, and answers the row: what was there stays as
-- it is, also where only what stands for the address was kept. No row is answered where somebody has put it since this
-- began: then it is there for whoever asks again.
--   $1 text  tenant   $2 text  channel, or '': any   $3 text  address, or   $4 text  subscriber
--   $5 text  what stands for the address   $6 text  category   $7 text  source   $8 text  actor
WITH put AS (
  INSERT INTO notifyqueue.suppressions AS s (tenant_id, channel, address, subscriber, category, source, created_by)
  SELECT $1, $2, notifyqueue.suppressed_form($2, $3), $4, $6, $7, $8
  WHERE NOT EXISTS (
    SELECT FROM notifyqueue.suppressions AS e
    WHERE e.tenant_id = $1 AND e.channel = $2 AND e.address = $5 AND e.category = $6 AND (e.source = $7) IS TRUE
  )
  ON CONFLICT DO NOTHING
  RETURNING s.id, s.channel, s.address, s.subscriber, s.category, s.source, s.code, s.created_by, s.created_at, s.erased
)
SELECT put.id, put.channel, put.address, put.subscriber, put.category, put.source, put.code, put.created_by AS actor,
  put.created_at, put.erased, false AS unchanged
FROM put
UNION ALL
SELECT s.id, s.channel, s.address, s.subscriber, s.category, s.source, s.code, s.created_by, s.created_at, s.erased, true
FROM notifyqueue.suppressions AS s
WHERE s.tenant_id = $1 AND s.channel = $2 AND s.category = $6
  AND s.address = ANY (ARRAY[notifyqueue.suppressed_form($2, $3), $5])
  AND (s.source = $7) IS TRUE  -- no index condition: that of the sources would look as good
UNION ALL
SELECT s.id, s.channel, s.address, s.subscriber, s.category, s.source, s.code, s.created_by, s.created_at, s.erased, true
FROM notifyqueue.suppressions AS s
WHERE s.tenant_id = $1 AND s.channel = $2 AND s.subscriber = $4 AND s.category = $6
  AND (s.source = $7) IS TRUE  -- likewise
