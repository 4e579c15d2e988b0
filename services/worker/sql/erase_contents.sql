-- erase_contents: erases what was said in notifications that ended long enough ago, and answers how far it looked. What
-- has a time to expire is not delivered after it, so its content goes whatever its end was; else FAILED and
-- DEAD_LETTERED keep theirs for a redrive, and the others lose it where $3 says so.
-- Only those that a redrive could still change are held; of what somebody else holds, nothing is erased.
--   $1 uuid  mark: the events after it   $2 interval  how long ago   $3 boolean  also where there is no time to expire
--   $4 int  at most so many events
WITH looked AS MATERIALIZED (
  SELECT next.id, next.notification_id
  FROM (  -- both bounds at once are guessed to be next to nothing, which would be read whole, and sorted
    SELECT e.id, e.notification_id FROM notifyqueue.webhook_events AS e WHERE e.id > $1 ORDER BY e.id LIMIT $4
  ) AS next
  WHERE next.id < (SELECT notifyqueue.first_id(now() - $2::interval))  -- computed once
),
ended AS MATERIALIZED (
  SELECT found.id, found.final
  FROM looked
  CROSS JOIN LATERAL (
    SELECT n.id, n.status IN ('SENT', 'CANCELLED', 'EXPIRED', 'SUPPRESSED') AS final
    FROM notifyqueue.notifications AS n
    WHERE n.id = looked.notification_id
      AND n.finished_at < now() - $2::interval
      AND (n.expire_at IS NOT NULL OR $3::boolean AND n.status IN ('SENT', 'CANCELLED', 'EXPIRED', 'SUPPRESSED'))
    OFFSET 0
  ) AS found
),
held AS MATERIALIZED (
  SELECT ended.id FROM ended WHERE ended.final
  UNION ALL
  SELECT found.id
  FROM ended
  CROSS JOIN LATERAL (
    SELECT n.id
    FROM notifyqueue.notifications AS n
    WHERE n.id = ended.id AND n.status IN ('FAILED', 'DEAD_LETTERED')
    FOR UPDATE SKIP LOCKED
    OFFSET 0
  ) AS found
  WHERE NOT ended.final
),
erased AS (
  DELETE FROM notifyqueue.notification_contents AS c
  WHERE c.notification_id = ANY (ARRAY(SELECT held.id FROM held))  -- a join would be guessed large
  RETURNING c.notification_id
)
SELECT count(*)::int AS looked, (SELECT last.id FROM looked AS last ORDER BY last.id DESC LIMIT 1) AS mark,
  (SELECT count(*) FROM erased)::int AS erased
FROM looked
