-- give_up_deleted: deliveries of 10 deleted endpoints are given up. What is under way may end first. Answers one row per
-- endpoint that was looked at.
--   $1 int  at most so many of each; with a parameter it is planned for the table as it is, not as it once was
WITH taken AS MATERIALIZED (
  SELECT e.id
  FROM notifyqueue.webhook_endpoints AS e
  WHERE e.next_due_at <= now() AND e.deleted_at IS NOT NULL
  ORDER BY e.next_due_at, e.id
  LIMIT 10
  FOR NO KEY UPDATE SKIP LOCKED
),
open AS MATERIALIZED (
  SELECT taken.id AS endpoint_id, found.id, found.next_attempt_at, found.idle
  FROM taken
  CROSS JOIN LATERAL (
    SELECT d.id, d.next_attempt_at, d.claim_token IS NULL OR d.next_attempt_at <= now() AS idle
    FROM notifyqueue.webhook_deliveries AS d
    WHERE d.endpoint_id = taken.id AND d.delivered_at IS NULL AND d.given_up_at IS NULL
    ORDER BY d.next_attempt_at, d.id
    LIMIT $1
  ) AS found
),
given_up AS (
  UPDATE notifyqueue.webhook_deliveries AS d
  SET claim_token = NULL, given_up_at = now(), give_up_reason = 'ENDPOINT_DELETED'
  WHERE d.id = ANY (ARRAY(SELECT open.id FROM open WHERE open.idle))  -- a join would be guessed large
    AND d.delivered_at IS NULL AND d.given_up_at IS NULL AND (d.claim_token IS NULL OR d.next_attempt_at <= now())
  RETURNING d.id
),
moved AS (
  UPDATE notifyqueue.webhook_endpoints AS e
  SET next_due_at = rest.next_due_at
  FROM (
    SELECT taken.id, CASE
      WHEN count(open.id) FILTER (WHERE open.idle) > 0 THEN now()
      ELSE coalesce(min(open.next_attempt_at), 'infinity')
    END AS next_due_at
    FROM taken
    LEFT JOIN open ON open.endpoint_id = taken.id
    GROUP BY taken.id
  ) AS rest
  WHERE e.id = rest.id
)
SELECT taken.id FROM taken
