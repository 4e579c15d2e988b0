-- hold_claims: which of these claims are still ours, most urgent first; they are held until the transaction ends. One
-- that somebody else has locked is passed over.
--   $1 uuid[]  notifications, ascending   $2 uuid[]  their claim tokens
SELECT found.id
FROM unnest($1::uuid[], $2::uuid[]) AS asked (id, claim_token)
CROSS JOIN LATERAL (
  SELECT n.id, n.status, n.claim_token, n.priority, n.next_attempt_at
  FROM notifyqueue.notifications AS n
  WHERE n.id = asked.id
  FOR UPDATE SKIP LOCKED
  OFFSET 0
) AS found
WHERE found.status = 'PROCESSING' AND found.claim_token = asked.claim_token
ORDER BY found.priority DESC, found.next_attempt_at, found.id
