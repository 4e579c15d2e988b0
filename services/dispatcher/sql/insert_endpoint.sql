-- insert_endpoint: names an endpoint, unless its tenant has as many as it may or, for a configured one, has it already.
-- Counted without a lock: the bound is there for the size of a fan-out, and calls that come at once may pass it together.
--   $1 uuid  id   $2 text  tenant   $3 text  url   $4 text[]  event types   $5 text  description   $6 bytea  secret
--   $7 bool  configured   $8 int  endpoints that a tenant without a quota of its own may have; null: any, whatever it is
INSERT INTO notifyqueue.webhook_endpoints (
  id, tenant_id, url, event_types, description, sealed_secret, configured
)
SELECT $1, $2, $3, $4, $5, $6, $7
WHERE $8::int IS NULL OR coalesce(
  (SELECT t.endpoint_quota FROM notifyqueue.tenants AS t WHERE t.id = $2), $8::int
) > (
  SELECT count(*) FROM notifyqueue.webhook_endpoints AS e WHERE e.tenant_id = $2 AND e.deleted_at IS NULL
)
ON CONFLICT DO NOTHING
RETURNING id, url, event_types, description, enabled, disabled_reason, created_at
