-- find_id: the id behind an idempotency key.
--   $1 text  tenant   $2 text  idempotency key
SELECT n.id
FROM notifyqueue.notifications AS n
WHERE n.tenant_id = $1 AND n.idempotency_key = $2
