-- mend_gates: sets a gate, due at once, where somebody waits at none. No statement leaves that behind, and without a gate
-- it would never end. Looks at up to 1,000 recipients after one, each by one look into the index, and answers them.
--   $1 text  tenant and   $2 text  limit key of the last one that was looked at
WITH RECURSIVE seen AS (
  (
    SELECT n.tenant_id, n.limit_key, n.channel
    FROM notifyqueue.notifications AS n
    WHERE n.waiting AND (n.tenant_id, n.limit_key) > ($1, $2)
    ORDER BY n.tenant_id, n.limit_key
    LIMIT 1
  )
  UNION ALL
  SELECT next.tenant_id, next.limit_key, next.channel
  FROM seen
  CROSS JOIN LATERAL (
    SELECT n.tenant_id, n.limit_key, n.channel
    FROM notifyqueue.notifications AS n
    WHERE n.waiting AND (n.tenant_id, n.limit_key) > (seen.tenant_id, seen.limit_key)
    ORDER BY n.tenant_id, n.limit_key
    LIMIT 1
  ) AS next
), looked AS MATERIALIZED (
  SELECT seen.tenant_id, seen.limit_key, seen.channel FROM seen LIMIT 1000
), mended AS (
  INSERT INTO notifyqueue.recipient_gates (tenant_id, limit_key, channel, opens_at)
  SELECT looked.tenant_id, looked.limit_key, looked.channel, now()
  FROM looked
  WHERE (
    SELECT g.limit_key
    FROM notifyqueue.recipient_gates AS g
    WHERE g.tenant_id = looked.tenant_id AND g.limit_key = looked.limit_key
  ) IS NULL
  ORDER BY looked.tenant_id, looked.limit_key
  ON CONFLICT (tenant_id, limit_key) DO NOTHING
  RETURNING tenant_id, limit_key
)
SELECT looked.tenant_id, looked.limit_key,
  (looked.tenant_id, looked.limit_key) IN (SELECT mended.tenant_id, mended.limit_key FROM mended) AS mended
FROM looked
ORDER BY looked.tenant_id, looked.limit_key
