-- delete_suppression: takes one suppression of an address or of a subscriber away, and answers its id; with it that of the
-- same address where only what stands for it was kept.
--   $1 text  tenant   $2 text  channel, or '': of any   $3 text  address, or   $4 text  subscriber
--   $5 text  what stands for the address   $6 text  category   $7 text  source
DELETE FROM notifyqueue.suppressions AS s
WHERE s.id = ANY (ARRAY(
  SELECT a.id
  FROM notifyqueue.suppressions AS a
  WHERE a.tenant_id = $1 AND a.channel = $2 AND a.category = $6
    AND a.address = ANY (ARRAY[notifyqueue.suppressed_form($2, $3), $5])
    AND (a.source = $7) IS TRUE  -- no index condition: that of the sources would look as good
  UNION ALL
  SELECT b.id
  FROM notifyqueue.suppressions AS b
  WHERE b.tenant_id = $1 AND b.channel = $2 AND b.category = $6 AND b.subscriber = $4
    AND (b.source = $7) IS TRUE  -- likewise
))
RETURNING s.id
