-- record_results: how attempts ended, each written once and only by the claim that made it; answers the ids written.
-- A delivery without an error is delivered, with a reason to give up it is given up, else it is due again after its
-- delay. An endpoint is held before its deliveries; a pause or 410 Gone moves it alone, never what waits for it.
--   $1 uuid[]  deliveries, ascending   $2 uuid[]  their endpoints   $3 uuid[]  claim tokens
--   $4 timestamptz[]  starts   $5 interval[]  durations   $6 int[]  HTTP statuses   $7 text[]  error classes
--   $8 text[]  reasons to give up   $9 interval[]  delays   $10 interval[]  pauses of the endpoint; null: none
WITH wanted AS MATERIALIZED (
  SELECT DISTINCT asked.id FROM unnest($2::uuid[]) AS asked (id) ORDER BY asked.id
),
locked AS MATERIALIZED (
  SELECT found.id, found.deleted_at
  FROM wanted
  CROSS JOIN LATERAL (
    SELECT e.id, e.deleted_at
    FROM notifyqueue.webhook_endpoints AS e
    WHERE e.id = wanted.id
    FOR NO KEY UPDATE
    OFFSET 0
  ) AS found
),
held AS MATERIALIZED (
  SELECT found.id, locked.id AS endpoint_id, found.attempt_count, done.started_at, done.duration, done.http_status,
    done.error_class, now() + done.delay AS due_at, now() + done.pause AS paused_until,
    CASE
      WHEN done.error_class IS NOT NULL AND done.give_up_reason IS NULL AND locked.deleted_at IS NOT NULL
        THEN 'ENDPOINT_DELETED'
      ELSE done.give_up_reason
    END AS give_up_reason
  FROM unnest(
    $1::uuid[], $2::uuid[], $3::uuid[], $4::timestamptz[], $5::interval[], $6::int[], $7::text[], $8::text[],
    $9::interval[], $10::interval[]
  ) AS done (
    id, endpoint_id, claim_token, started_at, duration, http_status, error_class, give_up_reason, delay, pause
  )
  JOIN locked ON locked.id = done.endpoint_id
  CROSS JOIN LATERAL (
    SELECT d.id, d.claim_token, d.attempt_count
    FROM notifyqueue.webhook_deliveries AS d
    WHERE d.id = done.id AND d.endpoint_id = locked.id
    FOR UPDATE
    OFFSET 0
  ) AS found
  WHERE found.claim_token = done.claim_token
),
attempted AS (
  INSERT INTO notifyqueue.webhook_attempts (delivery_id, attempt, started_at, duration, http_status, error_class)
  SELECT held.id, held.attempt_count, held.started_at, held.duration, held.http_status, held.error_class FROM held
),
moved AS (
  UPDATE notifyqueue.webhook_endpoints AS e
  SET next_due_at = least(e.next_due_at, failed.due_at),
      paused_until = greatest(e.paused_until, failed.paused_until),
      enabled = e.enabled AND NOT failed.gone,
      disabled_reason = CASE WHEN e.enabled AND failed.gone THEN 'GONE' ELSE e.disabled_reason END
  FROM (
    SELECT held.endpoint_id, min(held.due_at) FILTER (WHERE held.give_up_reason IS NULL) AS due_at,
      max(held.paused_until) AS paused_until, bool_or(held.give_up_reason IS NOT DISTINCT FROM 'GONE') AS gone
    FROM held
    WHERE held.error_class IS NOT NULL
    GROUP BY held.endpoint_id
  ) AS failed
  WHERE e.id = failed.endpoint_id
)
UPDATE notifyqueue.webhook_deliveries AS d
SET claim_token = NULL,
    delivered_at = CASE WHEN held.error_class IS NULL THEN now() END,
    given_up_at = CASE WHEN held.give_up_reason IS NOT NULL THEN now() END,
    give_up_reason = held.give_up_reason,
    next_attempt_at = CASE
      WHEN held.error_class IS NOT NULL AND held.give_up_reason IS NULL THEN held.due_at
      ELSE d.next_attempt_at
    END
FROM held
WHERE d.id = held.id
RETURNING d.id
