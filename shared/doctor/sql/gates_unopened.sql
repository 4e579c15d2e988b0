-- gates_unopened: gates that have been due for a while, with somebody waiting at them, in lanes that nothing has
-- stopped for as long. It looks at the first 1,000 of each lane, by key into the index of those who wait.
--   $1 interval  a while
SELECT lane.channel AS subject, count(*) AS count, max(late.looked) >= 1000 AS bounded, '{}'::text[] AS ids,
  now() - min(late.opens_at) AS age, '' AS facts
FROM notifyqueue.lanes AS lane
CROSS JOIN LATERAL (
  SELECT gate.tenant_id, gate.limit_key, gate.opens_at, count(*) OVER () AS looked
  FROM (
    SELECT g.tenant_id, g.limit_key, g.opens_at
    FROM notifyqueue.recipient_gates AS g
    WHERE g.channel = lane.channel AND g.opens_at < now() - $1::interval
    ORDER BY g.opens_at
    LIMIT 1000
  ) AS gate
) AS late
WHERE lane.paused_at IS NULL AND lane.opened_at IS NULL AND lane.held_until < now() - $1::interval
  AND NOT EXISTS (  -- it was stopped meanwhile
    SELECT FROM notifyqueue.lane_history AS h
    WHERE h.channel = lane.channel AND h.happened_at > now() - $1::interval
  )
  AND (
    SELECT n.id
    FROM notifyqueue.notifications AS n
    WHERE n.waiting AND n.tenant_id = late.tenant_id AND n.limit_key = late.limit_key
    LIMIT 1
  ) IS NOT NULL
GROUP BY lane.channel
ORDER BY lane.channel
