-- find_api_keys: those of these keys that are good now, by the database's clock, and for how long they still are.
--   $1 text[]  ids
SELECT k.id, k.tenant_id, k.role, k.secret_hash, k.expires_at - now() AS good_for
FROM unnest($1::text[]) AS asked (id)
JOIN notifyqueue.api_keys AS k ON k.id = asked.id
WHERE k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())
