-- count_pending: how many notifications of these tenants are PENDING, of each as far as its quota: it looks at no more of
-- them. What is found is kept in their buckets, which are held (lock_buckets): so whatever went in before is counted.
--   $1 text[]  tenants   $2 int[]  their quotas
UPDATE notifyqueue.accept_buckets AS b
SET pending = counted.pending, counted_at = statement_timestamp()
FROM (
  SELECT asked.tenant_id, found.pending
  FROM unnest($1::text[], $2::int[]) AS asked (tenant_id, quota)
  CROSS JOIN LATERAL (
    SELECT count(*) AS pending
    FROM (
      SELECT
      FROM notifyqueue.notifications AS n
      WHERE n.tenant_id = asked.tenant_id AND n.status = 'PENDING' AND n.finished_at IS NULL
      LIMIT asked.quota
    ) AS one
  ) AS found
) AS counted
WHERE b.tenant_id = counted.tenant_id
RETURNING b.tenant_id, b.pending
