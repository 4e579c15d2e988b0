-- count_templates: how many templates a tenant has, and how many it may have; null: as many as everybody.
--   $1 text  tenant
SELECT count(*) AS count,
  (SELECT o.template_quota FROM notifyqueue.tenants AS o WHERE o.id = $1) AS quota
FROM notifyqueue.templates AS t
WHERE t.tenant_id = $1 AND t.erased_at IS NULL
