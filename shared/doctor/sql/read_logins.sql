-- read_logins: who was let into the schema by name and may log in, with what is set for their sessions: for this database,
-- and else for all.
SELECT r.rolname AS login,
  coalesce((
    SELECT array_agg(s.setting ORDER BY s.setdatabase)
    FROM (
      SELECT d.setdatabase, unnest(d.setconfig) AS setting
      FROM pg_catalog.pg_db_role_setting AS d
      JOIN pg_catalog.pg_database AS b ON b.datname = current_database()
      WHERE d.setrole = r.oid AND d.setdatabase IN (0, b.oid)
    ) AS s
  ), '{}') AS settings
FROM pg_catalog.pg_namespace AS n
CROSS JOIN LATERAL aclexplode(n.nspacl) AS granted
JOIN pg_catalog.pg_roles AS r ON r.oid = granted.grantee
WHERE n.nspname = 'notifyqueue' AND granted.privilege_type = 'USAGE' AND r.rolcanlogin AND r.oid <> n.nspowner
ORDER BY r.rolname
