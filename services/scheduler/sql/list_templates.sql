-- list_templates: a tenant's templates in their newest versions without their texts, the last names first.
--   $1 text  tenant   $2 uuid  ids below   $3 int  at most
SELECT t.id, t.name, t.channel, v.version, v.default_locale, v.actor, v.created_at,
  ARRAY(SELECT jsonb_object_keys(v.variants)) AS locales
FROM (
  SELECT asked.id, asked.name, asked.channel, asked.newest
  FROM notifyqueue.templates AS asked
  WHERE asked.tenant_id = $1 AND asked.id < $2 AND asked.erased_at IS NULL
  ORDER BY asked.id DESC
  LIMIT $3
) AS t
JOIN notifyqueue.template_versions AS v ON v.template_id = t.id AND v.version = t.newest
ORDER BY t.id DESC
