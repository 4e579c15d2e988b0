-- put_suppression: sees to it that an address or a subscriber is suppressed, and answers the row: what was there stays as
-- it is. No row is answered where somebody has put it since this began: then it is there for whoever asks again.
--   $1 text  tenant   $2 text  channel, or '': any   $3 text  address, or   $4 text  subscriber
--   $5 text  category   $6 text  source   $7 text  actor
WITH put AS (
  INSERT INTO notifyqueue.suppressions AS s (tenant_id, channel, address, subscriber, category, source, created_by)
  VALUES ($1, $2, notifyqueue.suppressed_form($2, $3), $4, $5, $6, $7)
  ON CONFLICT DO NOTHING
  RETURNING s.id, s.channel, s.address, s.subscriber, s.category, s.source, s.code, s.created_by, s.created_at, s.erased
)
SELECT put.id, put.channel, put.address, put.subscriber, put.category, put.source, put.code, put.created_by AS actor,
  put.created_at, put.erased, false AS unchanged
FROM put
UNION ALL
SELECT s.id, s.channel, s.address, s.subscriber, s.category, s.source, s.code, s.created_by, s.created_at, s.erased, true
FROM notifyqueue.suppressions AS s
WHERE s.tenant_id = $1 AND s.channel = $2 AND s.address = notifyqueue.suppressed_form($2, $3) AND s.category = $5
  AND (s.source = $6) IS TRUE  -- no index condition: that of the sources would look as good
UNION ALL
SELECT s.id, s.channel, s.address, s.subscriber, s.category, s.source, s.code, s.created_by, s.created_at, s.erased, true
FROM notifyqueue.suppressions AS s
WHERE s.tenant_id = $1 AND s.channel = $2 AND s.subscriber = $4 AND s.category = $5
  AND (s.source = $6) IS TRUE  -- likewise
