-- look_up_keys: for each request the notification that stands under its key, if any, and what a new one is judged by:
-- the bounds of its tenant, what suppresses its address for its category, the time it is now, and where the tenant has
-- a limit, what is used of it. Takes no lock. Of a tenant without a limit no bucket is read.
--   $1 text[]  tenants   $2 text[]  idempotency keys
--   $3 text[]  channels   $4 text[]  addresses, canonical   $5 text[]  categories
SELECT asked.tenant_id, asked.idempotency_key, known.id, known.fingerprint, t.horizon, t.past_grace, t.region,
  t.accept_rate, t.accept_burst,
  CASE WHEN t.accept_rate IS NOT NULL THEN (
    SELECT b.empty_at
    FROM notifyqueue.accept_buckets AS b
    WHERE b.tenant_id = t.id
  ) END AS empty_at,
  statement_timestamp() AS now,
  ARRAY(
    SELECT s.source
    FROM notifyqueue.suppressions AS s
    WHERE s.tenant_id = asked.tenant_id AND s.channel = asked.channel
      AND s.address = notifyqueue.suppressed_form(asked.channel, asked.address)
      AND (s.category IN ('', asked.category)) IS TRUE  -- no index condition: it would be two searches
  ) AS suppressed_by
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])
  AS asked (tenant_id, idempotency_key, channel, address, category)
JOIN notifyqueue.tenants AS t ON t.id = asked.tenant_id
LEFT JOIN LATERAL (
  SELECT n.id, n.fingerprint
  FROM notifyqueue.notifications AS n
  WHERE n.tenant_id = asked.tenant_id AND n.idempotency_key = asked.idempotency_key
  OFFSET 0
) AS known ON true
