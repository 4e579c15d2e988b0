-- take_endpoints: holds endpoints that have something due and room for it, those with the fewest deliveries under way
-- first. What another dispatcher holds is its to serve, and passed over. Their deliveries are to be read in a later
-- statement: this one's snapshot is older than its locks.
--   $1 int  deliveries that an endpoint may have under way   $2 int  at most so many endpoints
SELECT e.id
FROM notifyqueue.webhook_endpoints AS e
CROSS JOIN LATERAL (
  SELECT count(*) AS leased
  FROM notifyqueue.webhook_deliveries AS d
  WHERE d.endpoint_id = e.id AND d.claim_token IS NOT NULL AND d.next_attempt_at > now()
) AS under_way
WHERE e.next_due_at <= now() AND e.paused_until <= now() AND e.enabled AND under_way.leased < $1
ORDER BY under_way.leased, e.next_due_at, e.id
LIMIT $2
FOR NO KEY UPDATE OF e SKIP LOCKED
