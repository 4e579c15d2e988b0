-- get_webhook: an event as an endpoint got it.
SELECT id, name, webhook_id, body, verified, answers, received_at FROM sandbox.webhooks WHERE id = $1
