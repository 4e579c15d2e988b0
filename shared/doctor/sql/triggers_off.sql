-- triggers_off: those of our triggers that are missing, or do not fire for everybody.
SELECT asked.name AS subject, 1::bigint AS count, false AS bounded, '{}'::text[] AS ids, NULL::interval AS age,
  CASE t.tgenabled WHEN 'D' THEN 'disabled' WHEN 'R' THEN 'for replicas only' ELSE 'missing' END AS facts
FROM (VALUES ('write_events', 'notifications'), ('count_ends', 'webhook_events')) AS asked (name, relation)
LEFT JOIN (
  pg_catalog.pg_trigger AS t
  JOIN pg_catalog.pg_class AS c ON c.oid = t.tgrelid
  JOIN pg_catalog.pg_namespace AS s ON s.oid = c.relnamespace AND s.nspname = 'notifyqueue'
) ON t.tgname = asked.name AND c.relname = asked.relation
WHERE t.tgenabled IS NULL OR t.tgenabled NOT IN ('O', 'A')
ORDER BY asked.name
