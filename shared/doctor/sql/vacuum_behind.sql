-- vacuum_behind: our tables that autovacuum does not look after, or has not for a while although a fifth of them is dead.
--   $1 interval  a while   $2 bigint  dead rows, at least
SELECT judged.name AS subject, judged.dead AS count, false AS bounded, '{}'::text[] AS ids, now() - judged.at AS age,
  CASE WHEN judged.off THEN 'autovacuum is off' ELSE '' END AS facts
FROM (
  SELECT t.relname AS name, t.n_dead_tup AS dead, t.n_live_tup AS live, greatest(t.last_autovacuum, t.last_vacuum) AS at,
    current_setting('autovacuum') = 'off' OR current_setting('track_counts') = 'off'
      OR coalesce(c.reloptions && ARRAY['autovacuum_enabled=off', 'autovacuum_enabled=false'], false) AS off
  FROM pg_catalog.pg_stat_user_tables AS t
  JOIN pg_catalog.pg_class AS c ON c.oid = t.relid
  WHERE t.schemaname = 'notifyqueue'
) AS judged
WHERE judged.off
  OR judged.dead >= $2::bigint AND judged.dead > judged.live / 5 AND coalesce(judged.at < now() - $1::interval, true)
ORDER BY judged.name
