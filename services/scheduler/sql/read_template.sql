-- read_template: a version of a template with its texts. Of one that is erased, or never had this version, what is left:
-- its id and the number of its newest version.
--   $1 text  tenant   $2 text  name   $3 int  version; null: the newest
SELECT t.id, t.name, t.channel, t.newest, t.erased_at IS NOT NULL AS erased, v.version, v.default_locale, v.variants,
  v.actor, v.created_at, (
    SELECT count(*)
    FROM notifyqueue.template_versions AS kept
    WHERE kept.template_id = t.id
  ) AS versions
FROM notifyqueue.templates AS t
LEFT JOIN notifyqueue.template_versions AS v ON v.template_id = t.id AND v.version = coalesce($3::int, t.newest)
WHERE t.tenant_id = $1 AND t.name = $2
