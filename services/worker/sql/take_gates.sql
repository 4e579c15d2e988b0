-- take_gates: up to $2 of the first 1,000 gates of a lane, as far as they are due, held until the transaction ends; what
-- another worker holds is left to it.
--   $1 text  channel   $2 int  how many
SELECT held.tenant_id, held.limit_key
FROM (  -- with the bound, those that are due would be guessed to be few, read whole, and sorted
  SELECT g.tenant_id, g.limit_key, g.opens_at
  FROM notifyqueue.recipient_gates AS g
  WHERE g.channel = $1
  ORDER BY g.opens_at
  LIMIT 1000
) AS next
CROSS JOIN LATERAL (
  SELECT o.tenant_id, o.limit_key
  FROM notifyqueue.recipient_gates AS o
  WHERE o.tenant_id = next.tenant_id AND o.limit_key = next.limit_key AND o.opens_at <= now()
  FOR UPDATE SKIP LOCKED
  OFFSET 0
) AS held
WHERE next.opens_at <= now()
LIMIT $2
