-- make_buckets: an empty bucket for each of these tenants that has none. In a transaction of its own: it takes them
-- before those that are held, whose order it does not know.
--   $1 text[]  tenants, ascending
INSERT INTO notifyqueue.accept_buckets (tenant_id)
SELECT new.tenant_id
FROM unnest($1::text[]) AS new (tenant_id)
ON CONFLICT (tenant_id) DO NOTHING
