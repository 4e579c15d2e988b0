-- events_unassigned: events that no dispatcher has fanned out for a while, oldest first, up to 1,001. Ids carry their time.
--   $1 interval  a while
SELECT '' AS subject, least(count(*), 1000) AS count, count(*) > 1000 AS bounded,
  (array_agg(fresh.id::text ORDER BY fresh.id))[1:5] AS ids, now() - min(fresh.occurred_at) AS age, '' AS facts
FROM (
  SELECT e.id, e.occurred_at
  FROM notifyqueue.webhook_events AS e
  WHERE e.fanned_out_at IS NULL AND e.id < (SELECT notifyqueue.first_id(now() - $1::interval))  -- computed once
  ORDER BY e.id
  LIMIT 1001
) AS fresh
HAVING count(*) > 0
