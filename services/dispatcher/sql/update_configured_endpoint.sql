-- update_configured_endpoint: makes it what the settings say now, and enables it again.
--   $1 uuid  endpoint   $2 text  url   $3 bytea  secret
UPDATE notifyqueue.webhook_endpoints AS e
SET url = $2, sealed_secret = $3, enabled = true, disabled_reason = NULL
WHERE e.id = $1 AND e.configured AND e.deleted_at IS NULL
RETURNING e.id
