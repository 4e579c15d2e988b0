-- put_suppression: sees to it that an address is suppressed, and answers the row: what was there stays as it is. No row is
-- answered where somebody has put it since this began: then it is there for whoever asks again.
--   $1 text  tenant   $2 text  channel   $3 text  address   $4 text  category   $5 text  source   $6 text  actor
WITH put AS (
  INSERT INTO notifyqueue.suppressions AS s (tenant_id, channel, address, category, source, created_by)
  VALUES ($1, $2, notifyqueue.suppressed_form($2, $3), $4, $5, $6)
  ON CONFLICT DO NOTHING
  RETURNING s.id, s.channel, s.address, s.category, s.source, s.code, s.created_by, s.created_at
)
SELECT put.id, put.channel, put.address, put.category, put.source, put.code, put.created_by AS actor, put.created_at,
  false AS unchanged
FROM put
UNION ALL
SELECT s.id, s.channel, s.address, s.category, s.source, s.code, s.created_by, s.created_at, true
FROM notifyqueue.suppressions AS s
WHERE s.tenant_id = $1 AND s.channel = $2 AND s.address = notifyqueue.suppressed_form($2, $3) AND s.category = $4
  AND (s.source = $5) IS TRUE  -- no index condition: that of the sources would look as good
