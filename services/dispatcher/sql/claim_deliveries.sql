-- claim_deliveries: leases what is due of the endpoints that this transaction holds. No endpoint has more than its cap
-- under way, and whatever room this dispatcher has goes in turn to the endpoint that has the fewest. Attempts count
-- from here: one whose lease ran out is recorded as lost, and past the last there is no further (`given_up`).
--   $1 uuid[]    endpoints, held by take_endpoints
--   $2 int       deliveries that an endpoint may have under way   $3 int  at most so many deliveries
--   $4 uuid      claim token, made before asking, so that a lost answer can be given back
--   $5 interval  lease   $6 int  attempts that a delivery may have
WITH held AS MATERIALIZED (
  SELECT asked.id, under_way.leased
  FROM unnest($1::uuid[]) AS asked (id)
  CROSS JOIN LATERAL (
    SELECT count(*)::int AS leased
    FROM notifyqueue.webhook_deliveries AS d
    WHERE d.endpoint_id = asked.id AND d.claim_token IS NOT NULL AND d.next_attempt_at > now()
  ) AS under_way
),
open AS MATERIALIZED (  -- as many as there is room for, and the one after them
  SELECT found.id, held.id AS endpoint_id, found.next_attempt_at, found.attempt_count, found.claim_token,
    held.leased + row_number() OVER (PARTITION BY held.id ORDER BY found.next_attempt_at, found.id) AS place
  FROM held
  CROSS JOIN LATERAL (
    SELECT d.id, d.next_attempt_at, d.attempt_count, d.claim_token
    FROM notifyqueue.webhook_deliveries AS d
    WHERE d.endpoint_id = held.id AND d.delivered_at IS NULL AND d.given_up_at IS NULL
    ORDER BY d.next_attempt_at, d.id
    LIMIT greatest($2::int - held.leased, 0) + 1
  ) AS found
),
taken AS MATERIALIZED (
  SELECT open.id, open.next_attempt_at, open.attempt_count, open.claim_token, open.attempt_count >= $6::int AS spent
  FROM open
  WHERE open.next_attempt_at <= now() AND open.place <= $2::int
  ORDER BY open.place, open.next_attempt_at, open.id
  LIMIT $3
),
lost AS (
  INSERT INTO notifyqueue.webhook_attempts (delivery_id, attempt, started_at, duration, error_class)
  SELECT taken.id, taken.attempt_count, taken.next_attempt_at - $5::interval, $5::interval, 'LEASE_LOST'
  FROM taken
  WHERE taken.claim_token IS NOT NULL
  ON CONFLICT (delivery_id, attempt) DO NOTHING  -- no record of the past may stand in the way of a claim
),
moved AS (
  UPDATE notifyqueue.webhook_endpoints AS e
  SET next_due_at = rest.next_due_at
  FROM (
    SELECT held.id, coalesce(
      least(
        min(open.next_attempt_at) FILTER (WHERE taken.id IS NULL),
        min(now() + $5::interval) FILTER (WHERE NOT taken.spent)
      ),
      'infinity'
    ) AS next_due_at
    FROM held
    LEFT JOIN open ON open.endpoint_id = held.id
    LEFT JOIN taken ON taken.id = open.id
    GROUP BY held.id
  ) AS rest
  WHERE e.id = rest.id
),
claimed AS (
  UPDATE notifyqueue.webhook_deliveries AS d
  SET attempt_count = d.attempt_count + (d.attempt_count < $6::int)::int,
      claim_token = CASE WHEN d.attempt_count < $6::int THEN $4::uuid END,
      next_attempt_at = CASE WHEN d.attempt_count < $6::int THEN now() + $5::interval ELSE d.next_attempt_at END,
      given_up_at = CASE WHEN d.attempt_count >= $6::int THEN now() END,
      give_up_reason = CASE WHEN d.attempt_count >= $6::int THEN 'EXHAUSTED' END
  WHERE d.id = ANY (ARRAY(SELECT taken.id FROM taken))  -- a join would be guessed large, and read the whole table
  RETURNING d.id, d.event_id, d.endpoint_id, d.attempt_count, d.given_up_at
)
SELECT claimed.id, claimed.event_id, claimed.endpoint_id, claimed.attempt_count,
  claimed.given_up_at IS NOT NULL AS given_up,
  target.tenant_id, target.url, target.sealed_secret, event.body,
  event.trace_context, event.recent, now() AS claimed_at
FROM claimed
CROSS JOIN LATERAL (
  SELECT e.tenant_id, e.url, e.sealed_secret
  FROM notifyqueue.webhook_endpoints AS e
  WHERE e.id = claimed.endpoint_id
  OFFSET 0
) AS target
CROSS JOIN LATERAL (
  SELECT v.body, v.trace_context, v.occurred_at > now() - interval '15 minutes' AS recent
  FROM notifyqueue.webhook_events AS v
  WHERE v.id = claimed.event_id
  OFFSET 0
) AS event
