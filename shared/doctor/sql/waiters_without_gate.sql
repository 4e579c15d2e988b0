-- waiters_without_gate: the first of those who wait for each recipient that has no gate. It looks at up to 10,000
-- recipients, each by one look into the index, as mend_gates does.
WITH RECURSIVE seen AS (
  (
    SELECT n.id, n.tenant_id, n.limit_key, n.channel, n.next_attempt_at
    FROM notifyqueue.notifications AS n
    WHERE n.waiting
    ORDER BY n.tenant_id, n.limit_key
    LIMIT 1
  )
  UNION ALL
  SELECT next.id, next.tenant_id, next.limit_key, next.channel, next.next_attempt_at
  FROM seen
  CROSS JOIN LATERAL (
    SELECT n.id, n.tenant_id, n.limit_key, n.channel, n.next_attempt_at
    FROM notifyqueue.notifications AS n
    WHERE n.waiting AND (n.tenant_id, n.limit_key) > (seen.tenant_id, seen.limit_key)
    ORDER BY n.tenant_id, n.limit_key
    LIMIT 1
  ) AS next
), looked AS MATERIALIZED (
  SELECT seen.id, seen.tenant_id, seen.limit_key, seen.channel, seen.next_attempt_at FROM seen LIMIT 10000
)
SELECT looked.channel AS subject, count(*) AS count, (SELECT count(*) >= 10000 FROM looked AS every) AS bounded,
  (array_agg(looked.id::text ORDER BY looked.id))[1:5] AS ids, now() - min(looked.next_attempt_at) AS age, '' AS facts
FROM looked
WHERE (
  SELECT g.limit_key
  FROM notifyqueue.recipient_gates AS g
  WHERE g.tenant_id = looked.tenant_id AND g.limit_key = looked.limit_key
) IS NULL
GROUP BY looked.channel
ORDER BY looked.channel
