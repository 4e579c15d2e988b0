-- list_subscribers: a tenant's subscribers, the newest first. recipient_store.py puts the condition that an index answers
-- in place of the marked line, where those with an address are asked for.
--   $1 text  tenant   $2 uuid  ids below   $3 int  at most   $4 text  address, with that condition only
SELECT s.id, s.name, s.email, s.phone, s.push, s.locale, s.time_zone, s.created_at, s.updated_at
FROM notifyqueue.subscribers AS s
WHERE s.tenant_id = $1 AND s.id < $2
  -- leading condition
ORDER BY s.id DESC
LIMIT $3
