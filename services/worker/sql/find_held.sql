-- find_held: which of these claims are still ours, without a look at who has locked them.
--   $1 uuid[]  notifications   $2 uuid[]  their claim tokens
SELECT found.id
FROM unnest($1::uuid[], $2::uuid[]) AS asked (id, claim_token)
CROSS JOIN LATERAL (
  SELECT n.id, n.claim_token
  FROM notifyqueue.notifications AS n
  WHERE n.id = asked.id
  OFFSET 0
) AS found
WHERE found.claim_token = asked.claim_token
