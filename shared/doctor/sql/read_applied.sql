-- read_applied: the migrations that were applied, with the checksums of what they were then.
SELECT m.version, m.checksum FROM notifyqueue.schema_migrations AS m ORDER BY m.version
