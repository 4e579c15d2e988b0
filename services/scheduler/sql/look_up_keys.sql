-- look_up_keys: for each idempotency key the notification that stands under it, if any, with what bounds its tenant's
-- times, its region, and the time it is now. Takes no lock.
--   $1 text[]  tenants   $2 text[]  idempotency keys
SELECT asked.tenant_id, asked.idempotency_key, known.id, known.fingerprint, t.horizon, t.past_grace, t.region,
  statement_timestamp() AS now
FROM unnest($1::text[], $2::text[]) AS asked (tenant_id, idempotency_key)
JOIN notifyqueue.tenants AS t ON t.id = asked.tenant_id
LEFT JOIN LATERAL (
  SELECT n.id, n.fingerprint
  FROM notifyqueue.notifications AS n
  WHERE n.tenant_id = asked.tenant_id AND n.idempotency_key = asked.idempotency_key
  OFFSET 0
) AS known ON true
