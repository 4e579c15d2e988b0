-- read_grants: what a login was granted on the tables of the schema, as whole ones and by column.
--   $1 text  login
SELECT held.relation, held.privilege, held.attribute
FROM (
  SELECT c.relname AS relation, granted.privilege_type AS privilege, '' AS attribute, granted.grantee
  FROM pg_catalog.pg_class AS c
  CROSS JOIN LATERAL aclexplode(c.relacl) AS granted
  WHERE c.relnamespace = 'notifyqueue'::regnamespace AND c.relkind IN ('r', 'p')
  UNION ALL
  SELECT c.relname, granted.privilege_type, a.attname, granted.grantee
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid
  CROSS JOIN LATERAL aclexplode(a.attacl) AS granted
  WHERE c.relnamespace = 'notifyqueue'::regnamespace AND c.relkind IN ('r', 'p')
) AS held
JOIN pg_catalog.pg_roles AS r ON r.oid = held.grantee
WHERE r.rolname = $1
ORDER BY held.relation, held.privilege, held.attribute
