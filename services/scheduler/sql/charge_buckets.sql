-- charge_buckets: what went in is spent. The rows are held already (lock_buckets).
--   $1 text[]  tenants   $2 timestamptz[]  when their buckets are empty from now on
UPDATE notifyqueue.accept_buckets AS b
SET empty_at = spent.empty_at
FROM unnest($1::text[], $2::timestamptz[]) AS spent (tenant_id, empty_at)
WHERE b.tenant_id = spent.tenant_id
