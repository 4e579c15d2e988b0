-- remove_gates: those of these gates at which nobody waits any more; their recipients' locks are ours.
--   $1 text[]  tenants   $2 text[]  limit keys
DELETE FROM notifyqueue.recipient_gates AS g
USING unnest($1::text[], $2::text[]) AS asked (tenant_id, limit_key)
WHERE g.tenant_id = asked.tenant_id AND g.limit_key = asked.limit_key
  AND (
    SELECT n.id
    FROM notifyqueue.notifications AS n
    WHERE n.waiting AND n.tenant_id = asked.tenant_id AND n.limit_key = asked.limit_key
    LIMIT 1
  ) IS NULL
RETURNING g.tenant_id, g.limit_key
