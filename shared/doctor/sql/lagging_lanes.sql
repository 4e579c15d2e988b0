-- lagging_lanes: lanes in which something has been due for a while although for as long nothing has stopped them and a
-- worker has served them. Likewise bounded as stranded_lanes.
--   $1 interval  a while
SELECT lane.channel AS subject, least(due.seen, 1000) AS count, due.seen > 1000 AS bounded, due.ids,
  now() - due.oldest AS age, '' AS facts
FROM notifyqueue.lanes AS lane
CROSS JOIN LATERAL (
  SELECT count(*) AS seen, min(late.since) AS oldest, (array_agg(late.id::text ORDER BY late.since, late.id))[1:5] AS ids
  FROM (
    SELECT n.id, greatest(n.next_attempt_at, n.created_at) AS since
    FROM (VALUES (3), (2), (1)) AS class (priority)
    CROSS JOIN LATERAL (
      SELECT p.id, p.next_attempt_at, p.created_at
      FROM notifyqueue.notifications AS p
      WHERE p.status = 'PENDING' AND NOT p.waiting AND p.expiries < 2
        AND p.channel = lane.channel AND p.priority = class.priority AND p.next_attempt_at < now() - $1::interval
      ORDER BY p.next_attempt_at, p.id
      LIMIT 1001
    ) AS n
  ) AS late
  WHERE late.since < now() - $1::interval
) AS due
WHERE due.seen > 0
  AND lane.paused_at IS NULL AND lane.opened_at IS NULL AND lane.held_until < now() - $1::interval
  AND NOT EXISTS (  -- it was stopped meanwhile
    SELECT FROM notifyqueue.lane_history AS h
    WHERE h.channel = lane.channel AND h.happened_at > now() - $1::interval
  )
  AND EXISTS (
    SELECT FROM notifyqueue.workers AS w
    WHERE w.heartbeat_at > clock_timestamp() - interval '15 seconds' AND w.phase = 'RUNNING'
      AND w.started_at < now() - $1::interval AND lane.channel = ANY (w.channels)
  )
ORDER BY lane.channel
