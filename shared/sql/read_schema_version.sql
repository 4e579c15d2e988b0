-- read_schema_version: the newest migration that was applied. Also the ping that readiness asks.
SELECT coalesce(max(m.version), 0) AS version
FROM notifyqueue.schema_migrations AS m
