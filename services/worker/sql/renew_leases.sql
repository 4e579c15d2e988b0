-- renew_leases: which of these claims are still ours; their leases run from now. Rows are taken as in mark_sent.
--   $1 uuid[]  notifications, ascending   $2 uuid[]  their claim tokens   $3 interval  lease
WITH held AS MATERIALIZED (
  SELECT found.id
  FROM unnest($1::uuid[], $2::uuid[]) AS done (id, claim_token)
  CROSS JOIN LATERAL (
    SELECT n.id, n.status, n.claim_token
    FROM notifyqueue.notifications AS n
    WHERE n.id = done.id
    FOR UPDATE
    OFFSET 0
  ) AS found
  WHERE found.status = 'PROCESSING' AND found.claim_token = done.claim_token
)
UPDATE notifyqueue.notifications AS n
SET lease_expires_at = now() + $3::interval
FROM held
WHERE n.id = held.id
RETURNING n.id
