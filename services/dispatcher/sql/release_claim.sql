-- release_claim: gives back what was claimed under a token, its attempt included: nothing was posted.
--   $1 uuid  claim token
WITH mine AS MATERIALIZED (
  SELECT d.id, d.endpoint_id FROM notifyqueue.webhook_deliveries AS d WHERE d.claim_token = $1
),
wanted AS MATERIALIZED (
  SELECT DISTINCT mine.endpoint_id AS id FROM mine ORDER BY id
),
locked AS MATERIALIZED (
  SELECT found.id
  FROM wanted
  CROSS JOIN LATERAL (
    SELECT e.id FROM notifyqueue.webhook_endpoints AS e WHERE e.id = wanted.id FOR NO KEY UPDATE OFFSET 0
  ) AS found
),
held AS MATERIALIZED (
  SELECT found.id, locked.id AS endpoint_id
  FROM mine
  JOIN locked ON locked.id = mine.endpoint_id
  CROSS JOIN LATERAL (
    SELECT d.id, d.claim_token
    FROM notifyqueue.webhook_deliveries AS d
    WHERE d.id = mine.id AND d.endpoint_id = locked.id  -- the endpoint first
    FOR UPDATE
    OFFSET 0
  ) AS found
  WHERE found.claim_token = $1
),
moved AS (
  UPDATE notifyqueue.webhook_endpoints AS e
  SET next_due_at = least(e.next_due_at, now())
  WHERE e.id IN (SELECT held.endpoint_id FROM held)
)
UPDATE notifyqueue.webhook_deliveries AS d
SET claim_token = NULL, attempt_count = d.attempt_count - 1, next_attempt_at = now()
FROM held
WHERE d.id = held.id
RETURNING d.id
