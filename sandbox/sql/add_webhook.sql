-- add_webhook: keeps an event, or counts it again; one bad signature among its deliveries leaves it unverified.
INSERT INTO sandbox.webhooks (name, webhook_id, body, verified, answers) VALUES ($1, $2, $3, $4, ARRAY[$5::int])
ON CONFLICT (name, webhook_id) DO UPDATE SET
  verified = sandbox.webhooks.verified IS NOT FALSE AND excluded.verified,
  answers = sandbox.webhooks.answers || excluded.answers
