-- erase_template: nothing of a template is left but its name and the number of its newest version; answers whether there
-- was one. Nobody else writes the tenant's templates meanwhile (lock_templates).
--   $1 text  tenant   $2 text  name
WITH template AS (
  UPDATE notifyqueue.templates AS t
  SET erased_at = now()
  WHERE t.tenant_id = $1 AND t.name = $2 AND t.erased_at IS NULL
  RETURNING t.id
), versions AS (
  DELETE FROM notifyqueue.template_versions AS v
  USING template
  WHERE v.template_id = template.id
)
SELECT template.id
FROM template
