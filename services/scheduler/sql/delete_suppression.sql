-- delete_suppression: takes one suppression of an address away, and answers its id.
--   $1 text  tenant   $2 text  channel   $3 text  address   $4 text  category   $5 text  source
DELETE FROM notifyqueue.suppressions AS s
WHERE s.tenant_id = $1 AND s.channel = $2 AND s.address = notifyqueue.suppressed_form($2, $3) AND s.category = $4
  AND (s.source = $5) IS TRUE  -- no index condition: that of the sources would look as good
RETURNING s.id
