-- look_up_keys: for each request the notification that stands under its key, if any, and what a new one is judged by:
-- the bounds of its tenant, what suppresses its address for its category, the time it is now, where the tenant has a
-- limit or a quota, what is used of it, and where the request names a template, which version of it is meant. Takes no
-- lock. Of a tenant with neither no bucket is read, and for a request without a template none of these.
--   $1 text[]  tenants   $2 text[]  idempotency keys
--   $3 text[]  channels   $4 text[]  addresses, canonical   $5 text[]  categories
--   $6 text[]  templates, or null   $7 int[]  versions of them; null: the newest
SELECT asked.tenant_id, asked.idempotency_key, known.id, known.fingerprint, t.horizon, t.past_grace, t.region,
  t.accept_rate, t.accept_burst, t.pending_quota, bucket.empty_at, bucket.pending, bucket.counted_at,
  statement_timestamp() AS now,
  ARRAY(
    SELECT s.source
    FROM notifyqueue.suppressions AS s
    WHERE s.tenant_id = asked.tenant_id AND s.channel = asked.channel
      AND s.address = notifyqueue.suppressed_form(asked.channel, asked.address)
      AND (s.category IN ('', asked.category)) IS TRUE  -- no index condition: it would be two searches
      AND NOT (s.source = 'OPTED_OUT' AND asked.category = ANY (t.required_categories))
  ) AS suppressed_by,
  template.id AS template_id, template.version AS template_version, template.channel AS template_channel
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::int[])
  AS asked (tenant_id, idempotency_key, channel, address, category, template, template_version)
JOIN notifyqueue.tenants AS t ON t.id = asked.tenant_id
LEFT JOIN LATERAL (
  SELECT b.empty_at, b.pending, b.counted_at
  FROM notifyqueue.accept_buckets AS b
  WHERE b.tenant_id = t.id AND (t.accept_rate IS NOT NULL OR t.pending_quota IS NOT NULL)
  OFFSET 0
) AS bucket ON true
LEFT JOIN LATERAL (
  SELECT n.id, n.fingerprint
  FROM notifyqueue.notifications AS n
  WHERE n.tenant_id = asked.tenant_id AND n.idempotency_key = asked.idempotency_key
  OFFSET 0
) AS known ON true
LEFT JOIN LATERAL (
  SELECT found.id, v.version, found.channel
  FROM notifyqueue.templates AS found
  JOIN notifyqueue.template_versions AS v
    ON v.template_id = found.id AND v.version = coalesce(asked.template_version, found.newest)
  WHERE asked.template IS NOT NULL AND found.tenant_id = asked.tenant_id AND found.name = asked.template
  OFFSET 0
) AS template ON true
