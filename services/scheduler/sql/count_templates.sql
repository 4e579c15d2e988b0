-- count_templates: how many templates a tenant has.
--   $1 text  tenant
SELECT count(*) AS count
FROM notifyqueue.templates AS t
WHERE t.tenant_id = $1 AND t.erased_at IS NULL
