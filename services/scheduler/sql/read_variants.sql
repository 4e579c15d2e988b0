-- read_variants: the texts of these versions of templates; those that were erased are left out.
--   $1 uuid[]  templates   $2 int[]  versions
SELECT asked.template_id, asked.version, v.default_locale, v.variants
FROM unnest($1::uuid[], $2::int[]) AS asked (template_id, version)
CROSS JOIN LATERAL (
  SELECT kept.default_locale, kept.variants
  FROM notifyqueue.template_versions AS kept
  WHERE kept.template_id = asked.template_id AND kept.version = asked.version
  OFFSET 0
) AS v
