-- find_standing: what became of claims that could not be held: still ours, and locked by somebody; or put to wait by us,
-- in a transaction whose answer was lost. Of the others nothing is answered.
--   $1 uuid[]  notifications   $2 uuid[]  their claim tokens
SELECT asked.id, found.held
FROM unnest($1::uuid[], $2::uuid[]) AS asked (id, claim_token)
CROSS JOIN LATERAL (
  SELECT true AS held
  FROM notifyqueue.notifications AS n
  WHERE n.id = asked.id AND n.claim_token = asked.claim_token
  UNION ALL
  SELECT false
  FROM notifyqueue.notification_history AS h
  WHERE h.notification_id = asked.id AND h.claim_token = asked.claim_token AND h.kind = 'WAITED'
) AS found
