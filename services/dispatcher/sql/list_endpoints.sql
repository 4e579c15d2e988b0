-- list_endpoints: a tenant's endpoints, newest first, without the deleted ones.
--   $1 text  tenant   $2 uuid  ids below   $3 int  at most
SELECT e.id, e.url, e.event_types, e.description, e.enabled, e.disabled_reason, e.created_at
FROM notifyqueue.webhook_endpoints AS e
WHERE e.tenant_id = $1 AND e.deleted_at IS NULL AND e.id < $2
ORDER BY e.id DESC
LIMIT $3
