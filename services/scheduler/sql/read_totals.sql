-- read_totals: how many of a tenant's ended in which way, since ever: what is merged, and what is not yet. Of the latter
-- it looks at no more than 10,001 rows; where there are more, nobody has merged for long, and the sums are lower bounds.
-- Both are read in one snapshot, so that what is being merged counts once.
--   $1 text  tenant; null: all
WITH recent AS MATERIALIZED (
  SELECT d.tenant_id, d.channel, d.status, d.count
  FROM notifyqueue.status_deltas AS d
  ORDER BY d.id
  LIMIT 10001
)
SELECT part.channel, part.status, sum(part.count)::bigint AS total,
  (SELECT count(*) > 10000 FROM recent) AS total_bounded
FROM (  -- of the first two one, each with a plan of its own
  SELECT t.channel, t.status, t.count FROM notifyqueue.status_totals AS t WHERE t.tenant_id = $1
  UNION ALL
  SELECT t.channel, t.status, t.count FROM notifyqueue.status_totals AS t WHERE $1::text IS NULL
  UNION ALL
  SELECT recent.channel, recent.status, recent.count FROM recent WHERE $1::text IS NULL OR recent.tenant_id = $1
) AS part
GROUP BY part.channel, part.status
