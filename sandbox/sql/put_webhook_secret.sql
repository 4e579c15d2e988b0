-- put_webhook_secret: what an endpoint's signatures are verified with from now on.
INSERT INTO sandbox.webhook_secrets (name, secret) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET secret = excluded.secret
