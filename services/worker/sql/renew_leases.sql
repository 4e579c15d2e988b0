-- renew_leases: the leases of the claims that are still ours run from now; answers those that are not ours any more. Rows
-- are taken as in mark_sent. One that somebody else has locked keeps its lease for this time, and is not lost.
--   $1 uuid[]  notifications, ascending   $2 uuid[]  their claim tokens   $3 interval  lease
WITH held AS MATERIALIZED (
  SELECT found.id
  FROM unnest($1::uuid[], $2::uuid[]) AS done (id, claim_token)
  CROSS JOIN LATERAL (
    SELECT n.id, n.status, n.claim_token
    FROM notifyqueue.notifications AS n
    WHERE n.id = done.id
    FOR UPDATE SKIP LOCKED
    OFFSET 0
  ) AS found
  WHERE found.status = 'PROCESSING' AND found.claim_token = done.claim_token
), renewed AS (
  UPDATE notifyqueue.notifications AS n
  SET lease_expires_at = now() + $3::interval
  FROM held
  WHERE n.id = held.id
)
SELECT asked.id
FROM unnest($1::uuid[], $2::uuid[]) AS asked (id, claim_token)
LEFT JOIN LATERAL (
  SELECT n.claim_token
  FROM notifyqueue.notifications AS n
  WHERE n.id = asked.id
  OFFSET 0
) AS now_held ON true
WHERE now_held.claim_token IS DISTINCT FROM asked.claim_token
