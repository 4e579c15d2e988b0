-- look_at_gate: a recipient's gates are due at once, where there are any: a slot that was kept there came free.
--   $1 text  tenant   $2 text  limit key
UPDATE notifyqueue.recipient_gates AS g
SET opens_at = least(g.opens_at, now())
WHERE g.tenant_id = $1 AND g.limit_key = ANY (notifyqueue.slot_keys($2))
