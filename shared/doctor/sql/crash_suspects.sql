-- crash_suspects: notifications whose claim expired twice, and that are still to be sent, by lane, up to 1,001 each.
SELECT lane.channel AS subject, least(suspects.seen, 1000) AS count, suspects.seen > 1000 AS bounded, suspects.ids,
  now() - suspects.oldest AS age, '' AS facts
FROM notifyqueue.lanes AS lane
CROSS JOIN LATERAL (
  SELECT count(*) AS seen, (array_agg(n.id::text ORDER BY n.id))[1:5] AS ids, min(n.due_at) AS oldest
  FROM (
    SELECT s.id, s.due_at
    FROM notifyqueue.notifications AS s
    WHERE s.status = 'PENDING' AND NOT s.waiting AND s.expiries >= 2 AND s.channel = lane.channel
    ORDER BY s.next_attempt_at, s.id
    LIMIT 1001
  ) AS n
) AS suspects
WHERE suspects.seen > 0
ORDER BY lane.channel
