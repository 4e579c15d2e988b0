-- wait_at_gates: these claims, which this transaction holds, go back to PENDING and wait, out of the sight of claims. No
-- call was made, so the attempt does not count; they keep their due time, which is their place in the queue. What was erased
-- since it was claimed goes back, too, but waits nowhere: the next claim ends it, and nobody's name is written down again.
--   $1 uuid[]  notifications, ascending   $2 text[]  limit keys
WITH held AS MATERIALIZED (
  SELECT found.id, found.claim_token, found.worker_id,
    CASE WHEN found.address IS NOT NULL THEN asked.limit_key END AS gate
  FROM unnest($1::uuid[], $2::text[]) AS asked (id, limit_key)
  CROSS JOIN LATERAL (
    SELECT n.id, n.status, n.claim_token, n.worker_id, n.address
    FROM notifyqueue.notifications AS n
    WHERE n.id = asked.id
    FOR UPDATE
    OFFSET 0
  ) AS found
  WHERE found.status = 'PROCESSING'
), noted AS (
  INSERT INTO notifyqueue.notification_history (notification_id, kind, claim_token, worker_id)
  SELECT held.id, 'WAITED', held.claim_token, held.worker_id
  FROM held
)
UPDATE notifyqueue.notifications AS n
SET status = 'PENDING', waiting = held.gate IS NOT NULL, granted = false, limit_key = held.gate,
  attempt_count = n.attempt_count - 1, claim_token = NULL, worker_id = NULL, lease_expires_at = NULL,
  started_at = NULL, revision = n.revision + 1
FROM held
WHERE n.id = held.id
