-- ends_without_event: of the 5,000 notifications that were accepted last, those that ended a short while ago and have no
-- event of it. Those that ended earlier may have lost it to retention.
--   $1 interval  a short while
SELECT '' AS subject, count(*) AS count, max(ended.looked) >= 5000 AS bounded,
  (array_agg(ended.id::text ORDER BY ended.id DESC))[1:5] AS ids, now() - min(ended.finished_at) AS age, '' AS facts
FROM (
  SELECT newest.id, newest.status, newest.redrive_count, newest.finished_at, count(*) OVER () AS looked
  FROM (
    SELECT n.id, n.status, n.redrive_count, n.finished_at
    FROM notifyqueue.notifications AS n
    ORDER BY n.id DESC
    LIMIT 5000
  ) AS newest
) AS ended
WHERE ended.finished_at > now() - $1::interval
  AND (  -- by key: a join would be guessed large
    SELECT e.id
    FROM notifyqueue.webhook_events AS e
    WHERE e.notification_id = ended.id AND e.status = ended.status AND e.redrive_count = ended.redrive_count
    LIMIT 1
  ) IS NULL
HAVING count(*) > 0
