-- lock_expired_claims: up to 100 claims whose lease has passed, oldest first and locked, so that one sweep decides about
-- each. What another transaction holds is passed over, and hides nothing. After a start of the database nothing is
-- expired for one lease: nobody could renew while it was away.
--   $1 interval  lease   $2 uuid[]  only these; null: any
SELECT n.id, n.claim_token, n.worker_id, n.attempt_count, n.max_attempts, n.at_most_once, n.reconciliation_granted,
  n.maybe_delivered, n.started_at IS NOT NULL AS started, n.expire_at - now() AS time_left, n.channel,
  n.pseudonym, n.trace_context, n.last_trace_context, n.created_at > now() - interval '15 minutes' AS recent
FROM notifyqueue.notifications AS n
WHERE n.status = 'PROCESSING' AND n.lease_expires_at < now()
  AND pg_catalog.pg_postmaster_start_time() < now() - $1::interval
  AND ($2::uuid[] IS NULL OR n.id = ANY ($2))
ORDER BY n.lease_expires_at
LIMIT 100
FOR UPDATE SKIP LOCKED
