-- list_webhooks: the newest events of an endpoint, in the order in which they first arrived; those with $2 in their body,
-- or all.
SELECT webhook_id, body, verified, answers, received_at
FROM (
  SELECT * FROM sandbox.webhooks
  WHERE name = $1 AND ($2::text IS NULL OR position($2 IN body) > 0)
  ORDER BY id DESC LIMIT 1000
) newest
ORDER BY id
