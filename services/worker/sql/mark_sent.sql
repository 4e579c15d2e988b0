-- mark_sent: the claims that are still ours become SENT; a lost claim changes nothing.
-- Rows are taken one by one in array order and by key (OFFSET 0 keeps the planner from turning the lookup into a join),
-- so two groups cannot deadlock and a group of 500 costs 500 lookups. The fence is tested on the locked row. Locks that
-- claims leave behind for an instant are waited for; after a lock timeout store.py asks again, with SKIP LOCKED.
--   $1 uuid[]  notifications, ascending   $2 uuid[]  their claim tokens   $3 text[]  the provider's message ids
--   $4 text[]  the spans of the attempts
WITH held AS MATERIALIZED (
  SELECT found.id, done.provider_message_id, done.trace_context
  FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[])
    AS done (id, claim_token, provider_message_id, trace_context)
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
SET status = 'SENT', finished_at = now(), provider_message_id = held.provider_message_id, provider_code = NULL, granted = false,
  last_trace_context = coalesce(held.trace_context, n.last_trace_context),
  claim_token = NULL, worker_id = NULL, lease_expires_at = NULL, revision = n.revision + 1
FROM held
WHERE n.id = held.id
RETURNING n.id
