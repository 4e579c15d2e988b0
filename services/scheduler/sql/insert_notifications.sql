-- insert_notifications: writes those whose key is still free, each with its content; answers by key, never by position.
-- One order of keys, or two groups that share keys would deadlock. A due time in the past is due now, and does not
-- overtake what has been waiting. What expired on its way here is left out, and judged again. The content of a lost key
-- is left out by a hashed subplan, because a join's plan would be chosen for a small group and be quadratic in a large
-- one.
--   $1 text[]  tenants   $2 text[]  idempotency keys   $3 bytea[]  fingerprints
--   $4 text[]  channels   $5 text[]  addresses   $6 smallint[]  priorities
--   $7 timestamptz[]  due at, or   $8 interval[]  delays, or now
--   $9 timestamptz[]  expire at, or   $10 interval[]  time to live, or never
--   $11 boolean[]  at most once   $12 text[]  categories   $13 text[]  references   $14 text[]  labels, as JSON
--   $15 text[]  contents, as JSON   $16 text[]  templates that they are rendered from   $17 int[]  and their versions
--   $18 smallint  max_attempts of all   $19 text[]  the spans that asked
WITH new AS MATERIALIZED (
  SELECT notifyqueue.new_id() AS id, asked.tenant_id, asked.idempotency_key, asked.fingerprint, asked.channel,
    asked.address, asked.priority, asked.at_most_once, asked.category, asked.reference, asked.labels, asked.content,
    asked.template, asked.template_version, asked.trace_context, due.at AS due_at, coalesce(asked.expire_at, due.at + asked.ttl) AS expire_at
  FROM unnest(
    $1::text[], $2::text[], $3::bytea[], $4::text[], $5::text[], $6::smallint[], $7::timestamptz[], $8::interval[],
    $9::timestamptz[], $10::interval[], $11::boolean[], $12::text[], $13::text[], $14::text[], $15::text[],
    $16::text[], $17::int[], $19::text[]
  ) AS asked (
    tenant_id, idempotency_key, fingerprint, channel, address, priority, due_at, delay, expire_at, ttl, at_most_once,
    category, reference, labels, content, template, template_version, trace_context
  )
  CROSS JOIN LATERAL (SELECT coalesce(asked.due_at, now() + asked.delay, now()) AS at) AS due
), written AS (
  INSERT INTO notifyqueue.notifications (
    id, tenant_id, idempotency_key, fingerprint, channel, address, priority, due_at, next_attempt_at, expire_at,
    at_most_once, category, reference, labels, template, template_version, trace_context, max_attempts
  )
  SELECT new.id, new.tenant_id, new.idempotency_key, new.fingerprint, new.channel, new.address, new.priority,
    new.due_at, greatest(new.due_at, now()), new.expire_at, new.at_most_once, new.category, new.reference,
    new.labels::jsonb, new.template, new.template_version, new.trace_context,
    $18::smallint
  FROM new
  WHERE (new.expire_at <= new.due_at) IS NOT TRUE
  ORDER BY new.tenant_id COLLATE "C", new.idempotency_key COLLATE "C"
  ON CONFLICT (tenant_id, idempotency_key) DO NOTHING
  RETURNING id, tenant_id, idempotency_key, due_at, next_attempt_at, expire_at, created_at
), contents AS (
  INSERT INTO notifyqueue.notification_contents (notification_id, content)
  SELECT new.id, new.content::jsonb
  FROM new
  WHERE (new.id NOT IN (SELECT w.id FROM written AS w)) IS FALSE
)
SELECT w.id, w.tenant_id, w.idempotency_key, w.due_at, w.next_attempt_at, w.expire_at, w.created_at
FROM written AS w
