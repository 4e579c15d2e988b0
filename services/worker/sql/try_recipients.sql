-- try_recipients: which of these recipients are ours until the transaction ends; the busy ones are left for another time,
-- so nobody waits, and there is no order to keep. A subscriber's channels have one lock. What is read about them is read in
-- a later statement: the snapshot of this one is older than its locks.
--   $1 text[]  tenants   $2 text[]  limit keys
SELECT tried.tenant_id, tried.limit_key
FROM (
  SELECT asked.tenant_id, asked.limit_key,
    pg_try_advisory_xact_lock(
      hashtextextended(asked.tenant_id || ' ' || (notifyqueue.slot_keys(asked.limit_key))[1], 0)
    ) AS ours
  FROM unnest($1::text[], $2::text[]) AS asked (tenant_id, limit_key)
  OFFSET 0
) AS tried
WHERE tried.ours
