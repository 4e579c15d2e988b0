-- read_region: where a tenant's telephone numbers are when they do not say.
--   $1 text  tenant
SELECT t.region
FROM notifyqueue.tenants AS t
WHERE t.id = $1
