-- read_schedule: where a notification stands and when it expires, with what bounds its tenant's times and the time it is
-- now. Takes no lock.
--   $1 text  tenant   $2 uuid  notification
SELECT n.status, n.expire_at, t.horizon, t.past_grace, statement_timestamp() AS now
FROM notifyqueue.notifications AS n
JOIN notifyqueue.tenants AS t ON t.id = n.tenant_id
WHERE n.tenant_id = $1 AND n.id = $2
