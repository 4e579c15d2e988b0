-- read_subscriber: a tenant's subscriber, by name.
--   $1 text  tenant   $2 text  name
SELECT s.id, s.name, s.email, s.phone, s.push, s.locale, s.time_zone, s.created_at, s.updated_at
FROM notifyqueue.subscribers AS s
WHERE s.tenant_id = $1 AND s.name = $2
