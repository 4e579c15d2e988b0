-- look_up_keys: for each request the notification that stands under its key, if any, and what a new one is judged by:
-- the bounds of its tenant, what suppresses its address or its subscriber for its category, the time it is now, where
-- the tenant has a limit or a quota, what is used of it, where the request names a template, which version of it is
-- meant, and where it names a subscriber, who that is and has which address. Takes no lock. Of a tenant with neither
-- limit nor quota no bucket is read, and for a request without a template or subscriber none of these.
--   $1 text[]  tenants   $2 text[]  idempotency keys
--   $3 text[]  channels   $4 text[]  addresses, canonical   $5 text[]  categories
--   $6 text[]  templates, or null   $7 int[]  versions of them; null: the newest
--   $8 text[]  subscribers, or null   $9 text[]  what stands for the addresses where they are erased, or null
SELECT asked.tenant_id, asked.idempotency_key, known.id, known.fingerprint, t.horizon, t.past_grace, t.region,
  t.accept_rate, t.accept_burst, t.pending_quota, bucket.empty_at, bucket.pending, bucket.counted_at,
  statement_timestamp() AS now,
  ARRAY(
    SELECT said.source
    FROM (
      SELECT s.source, s.category
      FROM notifyqueue.suppressions AS s
      WHERE s.tenant_id = asked.tenant_id AND s.channel = asked.channel
        AND s.address = ANY (ARRAY[notifyqueue.suppressed_form(asked.channel, asked.address), asked.pseudonym])
      UNION ALL
      SELECT o.source, o.category
      FROM notifyqueue.suppressions AS o
      WHERE o.tenant_id = asked.tenant_id AND o.subscriber = asked.subscriber
        AND (o.channel IN ('', asked.channel)) IS TRUE
    ) AS said
    WHERE (said.category IN ('', asked.category)) IS TRUE  -- no index condition: it would be two searches
      AND NOT (said.source = 'OPTED_OUT' AND asked.category = ANY (t.required_categories))
  ) AS suppressed_by,
  template.id AS template_id, template.version AS template_version, template.channel AS template_channel,
  person.id AS person_id, person.address AS person_address, person.locale AS person_locale
FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::int[], $8::text[], $9::text[]
  ) AS asked (
    tenant_id, idempotency_key, channel, address, category, template, template_version, subscriber, pseudonym
  )
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
LEFT JOIN LATERAL (
  SELECT p.id, CASE asked.channel WHEN 'EMAIL' THEN p.email WHEN 'SMS' THEN p.phone ELSE p.push END AS address, p.locale
  FROM notifyqueue.subscribers AS p
  WHERE asked.subscriber IS NOT NULL AND p.tenant_id = asked.tenant_id AND p.name = asked.subscriber
  OFFSET 0
) AS person ON true
