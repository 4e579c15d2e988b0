-- retry_later: the claims that are still ours go back to PENDING, due after a delay; a lost claim changes nothing. What
-- made no call and needs no delay keeps its due time, and so its place among those that wait.
-- Rows are taken as in mark_sent. The attempt, where there was one, goes into the history in the same statement.
--   $1 uuid[]  notifications, ascending   $2 uuid[]  their claim tokens   $3 interval[]  delays
--   $4 text[]  provider codes   $5 text[]  what the attempt was; null: no call was made
--   $6 boolean[]  the attempt does not count   $7 boolean[]  one attempt beyond the cap is granted, to reconcile
--   $8 boolean[]  the claim expired
WITH held AS MATERIALIZED (
  SELECT found.id, found.claim_token, found.worker_id, found.attempt_count, done.delay, done.provider_code, done.kind,
    done.refunded, done.reconciled, done.expired
  FROM unnest(
    $1::uuid[], $2::uuid[], $3::interval[], $4::text[], $5::text[], $6::boolean[], $7::boolean[], $8::boolean[]
  ) AS done (id, claim_token, delay, provider_code, kind, refunded, reconciled, expired)
  CROSS JOIN LATERAL (
    SELECT n.id, n.status, n.claim_token, n.worker_id, n.attempt_count
    FROM notifyqueue.notifications AS n
    WHERE n.id = done.id
    FOR UPDATE
    OFFSET 0
  ) AS found
  WHERE found.status = 'PROCESSING' AND found.claim_token = done.claim_token
), noted AS (
  INSERT INTO notifyqueue.notification_history
    (notification_id, kind, attempt, claim_token, worker_id, provider_code, retry_delay)
  SELECT held.id, held.kind, held.attempt_count, held.claim_token, held.worker_id, held.provider_code, held.delay
  FROM held
  WHERE held.kind IS NOT NULL
)
UPDATE notifyqueue.notifications AS n
SET status = 'PENDING',
  next_attempt_at = CASE WHEN held.kind IS NULL AND held.delay = '0' THEN n.next_attempt_at ELSE now() + held.delay END,
  attempt_count = n.attempt_count - held.refunded::int, max_attempts = n.max_attempts + held.reconciled::int,
  reconciliation_granted = n.reconciliation_granted OR held.reconciled,
  maybe_delivered = n.maybe_delivered OR coalesce(held.kind = 'ATTEMPT_UNKNOWN', false),
  expiries = n.expiries + held.expired::int, provider_code = coalesce(held.provider_code, n.provider_code),
  granted = n.granted AND held.kind IS NULL,
  claim_token = NULL, worker_id = NULL, lease_expires_at = NULL, started_at = NULL, revision = n.revision + 1
FROM held
WHERE n.id = held.id
RETURNING n.id
