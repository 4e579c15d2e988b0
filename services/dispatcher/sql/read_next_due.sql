-- read_next_due: in how many seconds an endpoint can be claimed from, if any can within the time asked about. One that
-- has no room is left out: whoever makes room looks again.
--   $1 int  deliveries that an endpoint may have under way   $2 interval  how far to look
SELECT extract(epoch FROM min(greatest(e.next_due_at, e.paused_until)) - clock_timestamp())::float8 AS seconds
FROM notifyqueue.webhook_endpoints AS e
CROSS JOIN LATERAL (
  SELECT count(*) AS leased
  FROM notifyqueue.webhook_deliveries AS d
  WHERE d.endpoint_id = e.id AND d.claim_token IS NOT NULL AND d.next_attempt_at > now()
) AS under_way
WHERE e.next_due_at <= now() + $2::interval AND e.enabled AND under_way.leased < $1
