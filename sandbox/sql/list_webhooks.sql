-- list_webhooks: the newest events of an endpoint, in the order in which they first arrived.
SELECT webhook_id, body, verified, answers, received_at
FROM (SELECT * FROM sandbox.webhooks WHERE name = $1 ORDER BY id DESC LIMIT 1000) newest
ORDER BY id
