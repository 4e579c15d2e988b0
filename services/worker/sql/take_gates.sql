-- take_gates: up to $2 gates of a lane that are due, held until the transaction ends; what another worker holds is left
-- to it.
--   $1 text  channel   $2 int  how many
SELECT g.tenant_id, g.limit_key
FROM notifyqueue.recipient_gates AS g
WHERE g.channel = $1 AND g.opens_at <= now()
ORDER BY g.opens_at
LIMIT $2
FOR UPDATE SKIP LOCKED
