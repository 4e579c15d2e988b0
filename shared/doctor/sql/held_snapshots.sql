-- held_snapshots: what keeps vacuum from removing anything for longer than a while: sessions (their ids are the pids; of
-- others' sessions an owner who is no superuser sees no times, and counts transactions), prepared transactions, and
-- replication slots.
--   $1 interval  a while   $2 bigint  as many transactions as that is, where there is no time
SELECT held.kind AS subject, count(*) AS count, false AS bounded, (array_agg(held.id ORDER BY held.xids DESC))[1:5] AS ids,
  now() - min(held.since) AS age, max(held.xids) || ' transactions ago' AS facts
FROM (
  SELECT 'session' AS kind, a.pid::text AS id, a.xact_start AS since,
    greatest(age(a.backend_xmin), age(a.backend_xid)) AS xids
  FROM pg_catalog.pg_stat_activity AS a
  WHERE a.usesysid IS NOT NULL  -- autovacuum's has nobody, and holds nothing back; of others' sessions the type is hidden
    AND num_nonnulls(a.backend_xmin, a.backend_xid) > 0
    AND (a.datname = current_database() OR a.datname IS NULL)
  UNION ALL
  SELECT 'prepared transaction', p.transaction::text, p.prepared, age(p.transaction)
  FROM pg_catalog.pg_prepared_xacts AS p
  WHERE p.database = current_database()
  UNION ALL
  SELECT 'replication slot', s.slot_name::text, NULL, greatest(age(s.xmin), age(s.catalog_xmin))
  FROM pg_catalog.pg_replication_slots AS s
  WHERE num_nonnulls(s.xmin, s.catalog_xmin) > 0
) AS held
WHERE CASE WHEN held.since IS NULL THEN held.xids > $2 ELSE held.since < now() - $1::interval END
GROUP BY held.kind
ORDER BY held.kind
