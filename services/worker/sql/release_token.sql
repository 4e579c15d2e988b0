-- release_token: gives back whatever a claim took whose answer never arrived.
--   $1 uuid  claim token   $2 uuid  worker
UPDATE notifyqueue.notifications AS n
SET status = 'PENDING', attempt_count = n.attempt_count - 1,
  claim_token = NULL, worker_id = NULL, lease_expires_at = NULL, revision = n.revision + 1
WHERE n.status = 'PROCESSING' AND n.claim_token = $1 AND n.worker_id = $2
RETURNING n.id
