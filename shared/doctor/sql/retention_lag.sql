-- retention_lag: sweeps that have left standing, for longer than a while, what was to go, and have not caught up for as
-- long (one that did begins with the first event again, and meets all of them on its way). Up to 1,001 events each.
--   $1 interval  retention and   $2 interval  of contents, zero where it is off   $3 interval  a while
SELECT sweep.name AS subject, least(left_.seen, 1000) AS count, left_.seen > 1000 AS bounded, left_.ids,
  now() - left_.oldest AS age, '' AS facts
FROM (
  SELECT m.sweep AS name, m.mark,
    CASE m.sweep WHEN 'NOTIFICATIONS' THEN $1::interval WHEN 'CONTENTS' THEN $2::interval ELSE '1 minute' END AS keep
  FROM notifyqueue.retention_marks AS m
  WHERE m.begun_at < now() - $3::interval
) AS sweep
CROSS JOIN LATERAL (
  SELECT count(*) AS seen, (array_agg(next.id::text ORDER BY next.id))[1:5] AS ids, min(next.occurred_at) AS oldest
  FROM (
    SELECT e.id, e.occurred_at
    FROM notifyqueue.webhook_events AS e
    WHERE e.id > sweep.mark
    ORDER BY e.id
    LIMIT 1001
  ) AS next
  WHERE next.id < notifyqueue.first_id(now() - sweep.keep - $3::interval)
) AS left_
WHERE sweep.keep > '0' AND left_.seen > 0
ORDER BY sweep.name
