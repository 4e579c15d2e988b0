-- stranded_lanes: lanes in which something has been due for a while and no worker serves it that lives (as in read_workers)
-- and takes work. Of each class it looks at what was due first, up to 1,001. What was accepted after it was due counts from
-- then.
--   $1 interval  a while
SELECT lane.channel AS subject, least(due.seen, 1000) AS count, due.seen > 1000 AS bounded, due.ids,
  now() - due.oldest AS age, '' AS facts
FROM notifyqueue.lanes AS lane
CROSS JOIN LATERAL (
  SELECT count(*) AS seen, min(late.since) AS oldest, (array_agg(late.id::text ORDER BY late.since, late.id))[1:5] AS ids
  FROM (
    SELECT n.id, greatest(n.next_attempt_at, n.created_at) AS since
    FROM (
      (
        SELECT s.id, s.next_attempt_at, s.created_at
        FROM notifyqueue.notifications AS s
        WHERE s.status = 'PENDING' AND NOT s.waiting AND s.expiries >= 2
          AND s.channel = lane.channel AND s.next_attempt_at < now() - $1::interval
        ORDER BY s.next_attempt_at, s.id
        LIMIT 1001
      )
      UNION ALL
      SELECT next.id, next.next_attempt_at, next.created_at
      FROM (VALUES (3), (2), (1)) AS class (priority)
      CROSS JOIN LATERAL (
        SELECT p.id, p.next_attempt_at, p.created_at
        FROM notifyqueue.notifications AS p
        WHERE p.status = 'PENDING' AND NOT p.waiting AND p.expiries < 2
          AND p.channel = lane.channel AND p.priority = class.priority AND p.next_attempt_at < now() - $1::interval
        ORDER BY p.next_attempt_at, p.id
        LIMIT 1001
      ) AS next
    ) AS n
  ) AS late
  WHERE late.since < now() - $1::interval
) AS due
WHERE due.seen > 0 AND NOT EXISTS (
  SELECT FROM notifyqueue.workers AS w
  WHERE w.heartbeat_at > clock_timestamp() - interval '15 seconds' AND w.phase = 'RUNNING'
    AND lane.channel = ANY (w.channels)
)
ORDER BY lane.channel
