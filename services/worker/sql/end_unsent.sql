-- end_unsent: the claims that are still ours end without being sent, as their reason says; a lost claim changes nothing.
-- Rows are taken as in mark_sent. The attempt, where there was one, goes into the history in the same statement,
-- and what it found out about the address into the suppressions, in ascending order, after the rows are locked.
--   $1 uuid[]  notifications, ascending   $2 uuid[]  their claim tokens
--   $3 text[]  failure reasons; null: it expired   $4 text[]  provider codes
--   $5 text[]  what the attempt was; null: no call was made, and it does not count   $6 boolean[]  the claim expired
--   $7 text[]  as what their addresses are suppressed; null: they are not   $8 text[]  the spans of the attempts
WITH held AS MATERIALIZED (
  SELECT found.id, found.claim_token, found.worker_id, found.attempt_count, done.failure_reason, done.provider_code,
    done.kind, done.expired, done.suppressed_as, done.trace_context, found.tenant_id, found.channel, found.address
  FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::boolean[], $7::text[], $8::text[])
    AS done (id, claim_token, failure_reason, provider_code, kind, expired, suppressed_as, trace_context)
  CROSS JOIN LATERAL (
    SELECT n.id, n.status, n.claim_token, n.worker_id, n.attempt_count, n.tenant_id, n.channel, n.address
    FROM notifyqueue.notifications AS n
    WHERE n.id = done.id
    FOR UPDATE
    OFFSET 0
  ) AS found
  WHERE found.status = 'PROCESSING' AND found.claim_token = done.claim_token
), noted AS (
  INSERT INTO notifyqueue.notification_history (notification_id, kind, attempt, claim_token, worker_id, provider_code)
  SELECT held.id, held.kind, held.attempt_count, held.claim_token, held.worker_id, held.provider_code
  FROM held
  WHERE held.kind IS NOT NULL
), suppressed AS (
  INSERT INTO notifyqueue.suppressions (tenant_id, channel, address, source, code)
  SELECT dead.tenant_id, dead.channel, dead.address, dead.source, dead.code
  FROM (
    SELECT held.tenant_id, held.channel, notifyqueue.suppressed_form(held.channel, held.address) COLLATE "C" AS address,
      held.suppressed_as COLLATE "C" AS source, held.provider_code AS code
    FROM held
    WHERE held.suppressed_as IS NOT NULL
  ) AS dead
  ORDER BY dead.tenant_id, dead.address, dead.channel, dead.source
  ON CONFLICT DO NOTHING
)
UPDATE notifyqueue.notifications AS n
SET status = CASE
    WHEN held.failure_reason IS NULL THEN 'EXPIRED'
    WHEN held.failure_reason IN ('ATTEMPTS_EXHAUSTED', 'WORKER_LOST') THEN 'DEAD_LETTERED'
    WHEN held.failure_reason IN ('OPTED_OUT', 'ADDRESS_SUPPRESSED') THEN 'SUPPRESSED'
    ELSE 'FAILED'
  END,
  finished_at = now(), granted = false, failure_reason = held.failure_reason,
  provider_code = coalesce(held.provider_code, n.provider_code),
  attempt_count = n.attempt_count - (held.kind IS NULL)::int, expiries = n.expiries + held.expired::int,
  last_trace_context = coalesce(held.trace_context, n.last_trace_context),
  claim_token = NULL, worker_id = NULL, lease_expires_at = NULL, revision = n.revision + 1
FROM held
WHERE n.id = held.id
RETURNING n.id
