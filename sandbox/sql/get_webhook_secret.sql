-- get_webhook_secret: no row where an endpoint has none.
SELECT secret FROM sandbox.webhook_secrets WHERE name = $1
