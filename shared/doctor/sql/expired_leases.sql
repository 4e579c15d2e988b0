-- expired_leases: claims whose lease passed two leases ago and that nobody has swept, oldest first. For one lease after the
-- database started nobody does.
--   $1 interval  lease
SELECT '' AS subject, least(count(*), 1000) AS count, count(*) > 1000 AS bounded,
  (array_agg(held.id::text ORDER BY held.lease_expires_at))[1:5] AS ids,
  now() - min(held.lease_expires_at) AS age, '' AS facts
FROM (
  SELECT n.id, n.lease_expires_at
  FROM notifyqueue.notifications AS n
  WHERE n.status = 'PROCESSING' AND n.lease_expires_at < now() - 2 * $1::interval
  ORDER BY n.lease_expires_at
  LIMIT 1001
) AS held
WHERE pg_catalog.pg_postmaster_start_time() < now() - 3 * $1::interval
HAVING count(*) > 0
