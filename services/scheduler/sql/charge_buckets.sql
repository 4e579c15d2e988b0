-- charge_buckets: what went in is spent, and counts in its tenant's quota. The rows are held already (lock_buckets).
--   $1 text[]  tenants   $2 timestamptz[]  when their buckets are empty from now on; null: they have no limit
--   $3 int[]  how many went in, where there is a quota, or 0
UPDATE notifyqueue.accept_buckets AS b
SET empty_at = coalesce(spent.empty_at, b.empty_at), pending = b.pending + spent.count
FROM unnest($1::text[], $2::timestamptz[], $3::int[]) AS spent (tenant_id, empty_at, count)
WHERE b.tenant_id = spent.tenant_id
