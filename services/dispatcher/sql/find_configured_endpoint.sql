-- find_configured_endpoint: the endpoint of a tenant that a setting named.
--   $1 text  tenant
SELECT e.id, e.url, e.sealed_secret, e.enabled
FROM notifyqueue.webhook_endpoints AS e
WHERE e.tenant_id = $1 AND e.configured AND e.deleted_at IS NULL
