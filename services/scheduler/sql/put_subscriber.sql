-- put_subscriber: a subscriber is what this says, and nothing else; answers when he was made and last changed, and whether
-- he was so before.
--   $1 text  tenant   $2 text  name   $3 text  mail address   $4 text  number   $5 text  token
--   $6 text  locale   $7 text  time zone
INSERT INTO notifyqueue.subscribers AS s (tenant_id, name, email, phone, push, locale, time_zone)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (tenant_id, name) DO UPDATE
SET email = excluded.email, phone = excluded.phone, push = excluded.push, locale = excluded.locale,
  time_zone = excluded.time_zone, updated_at = CASE
    WHEN (s.email, s.phone, s.push, s.locale, s.time_zone)
      IS DISTINCT FROM (excluded.email, excluded.phone, excluded.push, excluded.locale, excluded.time_zone)
    THEN now() ELSE s.updated_at
  END
RETURNING s.id, s.name, s.email, s.phone, s.push, s.locale, s.time_zone, s.created_at, s.updated_at,
  s.updated_at <> now() AS unchanged
