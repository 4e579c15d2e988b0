-- lock_buckets: holds the buckets of these tenants until the transaction ends. What is in them has to be read in a later
-- statement: this one's snapshot is older than its locks. After a lock timeout accept_store.py asks again, with SKIP LOCKED.
--   $1 text[]  tenants, ascending: two groups take them in one order
SELECT held.tenant_id
FROM unnest($1::text[]) AS asked (tenant_id)
CROSS JOIN LATERAL (
  SELECT b.tenant_id
  FROM notifyqueue.accept_buckets AS b
  WHERE b.tenant_id = asked.tenant_id
  FOR NO KEY UPDATE
  OFFSET 0
) AS held
