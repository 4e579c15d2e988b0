-- wait_at_gates: these claims, which this transaction holds, go back to PENDING and wait, out of the sight of claims. No
-- call was made, so the attempt does not count; they keep their due time, which is their place in the queue.
--   $1 uuid[]  notifications, ascending   $2 text[]  limit keys
WITH held AS MATERIALIZED (
  SELECT found.id, found.claim_token, found.worker_id, asked.limit_key
  FROM unnest($1::uuid[], $2::text[]) AS asked (id, limit_key)
  CROSS JOIN LATERAL (
    SELECT n.id, n.status, n.claim_token, n.worker_id
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
SET status = 'PENDING', waiting = true, granted = false, limit_key = held.limit_key, attempt_count = n.attempt_count - 1,
  claim_token = NULL, worker_id = NULL, lease_expires_at = NULL, started_at = NULL, revision = n.revision + 1
FROM held
WHERE n.id = held.id
