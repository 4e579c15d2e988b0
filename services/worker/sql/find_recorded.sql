-- find_recorded: which of these attempts were recorded already, by a statement whose answer was lost. What a sweep
-- wrote about the claim is not that record: it leaves a row with its own code, and whatever is SENT after it is another's.
--   $1 uuid[]  notifications   $2 uuid[]  their claim tokens   $3 smallint[]  attempt numbers
--   $4 text[]  what the attempt was, or SENT
SELECT asked.id
FROM unnest($1::uuid[], $2::uuid[], $3::smallint[], $4::text[]) AS asked (id, claim_token, attempt, kind)
CROSS JOIN LATERAL (
  SELECT n.id
  FROM notifyqueue.notifications AS n
  WHERE n.id = asked.id AND asked.kind = 'SENT' AND n.status = 'SENT' AND n.attempt_count = asked.attempt
    AND NOT EXISTS (
      SELECT FROM notifyqueue.notification_history AS h
      WHERE h.notification_id = asked.id AND h.claim_token = asked.claim_token
    )
  UNION ALL
  SELECT h.notification_id
  FROM notifyqueue.notification_history AS h
  WHERE h.notification_id = asked.id AND h.claim_token = asked.claim_token AND h.kind = asked.kind
    AND h.provider_code IS DISTINCT FROM 'lease_expired'
) AS found
