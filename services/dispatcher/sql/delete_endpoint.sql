-- delete_endpoint: forgets an endpoint and its secret, and makes it due, so that its deliveries are given up. Deleting
-- it again changes nothing.
--   $1 text  tenant   $2 uuid  endpoint
UPDATE notifyqueue.webhook_endpoints AS e
SET deleted_at = coalesce(e.deleted_at, now()), enabled = false, disabled_reason = 'DELETED', sealed_secret = '',
    next_due_at = CASE WHEN e.deleted_at IS NULL THEN now() ELSE e.next_due_at END
WHERE e.tenant_id = $1 AND e.id = $2
RETURNING id
