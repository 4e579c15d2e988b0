-- write_template: the next version of a template, or its first. Nobody else writes the tenant's templates meanwhile
-- (lock_templates).
--   $1 text  tenant   $2 text  name   $3 text  channel   $4 text  default locale   $5 text  variants, as JSON
--   $6 text  actor
WITH template AS (
  INSERT INTO notifyqueue.templates AS t (tenant_id, name, channel, newest)
  VALUES ($1, $2, $3, 1)
  ON CONFLICT (tenant_id, name) DO UPDATE
  SET newest = t.newest + 1, channel = excluded.channel, erased_at = NULL
  RETURNING t.id, t.newest
)
INSERT INTO notifyqueue.template_versions (template_id, version, default_locale, variants, actor)
SELECT template.id, template.newest, $4, $5::jsonb, $6
FROM template
RETURNING template_id AS id, version, created_at
