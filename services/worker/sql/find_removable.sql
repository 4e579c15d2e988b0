-- find_removable: what may go of the notifications that the next events are about, and how far it looked. An event is
-- closed when it was fanned out and each of its deliveries has ended.
-- A notification that ended for good, long enough ago, goes as a whole, with all its events, and only when all of them
-- are closed; it is held. Of one that is kept, was redriven, or is gone already, the closed events go that are old enough.
-- Nothing is joined but by key: a plan for a few would be quadratic for many.
--   $1 uuid  mark: the events after it   $2 interval  how long ago   $3 int  at most so many events
WITH looked AS MATERIALIZED (
  SELECT next.id, next.notification_id
  FROM (  -- both bounds at once are guessed to be next to nothing, which would be read whole, and sorted
    SELECT e.id, e.notification_id FROM notifyqueue.webhook_events AS e WHERE e.id > $1 ORDER BY e.id LIMIT $3
  ) AS next
  WHERE next.id < (SELECT notifyqueue.first_id(now() - $2::interval))  -- computed once
),
asked AS MATERIALIZED (
  SELECT DISTINCT looked.notification_id AS id FROM looked ORDER BY id
),
judged AS MATERIALIZED (
  SELECT asked.id, coalesce(found.final, false) AS final, coalesce(found.final AND found.old AND event.closed, false) AS whole,
    event.ids, event.loose_ids
  FROM asked
  CROSS JOIN LATERAL (
    SELECT array_agg(one.id) AS ids, bool_and(one.closed) AS closed,
      array_agg(one.id) FILTER (WHERE one.closed AND one.id < (SELECT notifyqueue.first_id(now() - $2::interval))) AS loose_ids
    FROM (
      SELECT e.id, e.fanned_out_at IS NOT NULL AND open.id IS NULL AS closed
      FROM notifyqueue.webhook_events AS e
      LEFT JOIN LATERAL (
        SELECT d.id
        FROM notifyqueue.webhook_deliveries AS d
        WHERE d.event_id = e.id AND d.delivered_at IS NULL AND d.given_up_at IS NULL
        LIMIT 1
      ) AS open ON true
      WHERE e.notification_id = asked.id
    ) AS one
  ) AS event
  LEFT JOIN LATERAL (
    SELECT n.status IN ('SENT', 'CANCELLED', 'EXPIRED', 'SUPPRESSED') AS final, n.finished_at < now() - $2::interval AS old
    FROM notifyqueue.notifications AS n
    WHERE n.id = asked.id
    OFFSET 0
  ) AS found ON true
  ORDER BY asked.id
),
going AS MATERIALIZED (
  SELECT held.id, CASE WHEN judged.final THEN CASE WHEN held.id IS NOT NULL THEN judged.ids END ELSE judged.loose_ids END
      AS event_ids
  FROM judged
  LEFT JOIN LATERAL (
    SELECT n.id
    FROM notifyqueue.notifications AS n
    WHERE n.id = judged.id AND judged.whole AND n.status IN ('SENT', 'CANCELLED', 'EXPIRED', 'SUPPRESSED')
    FOR UPDATE SKIP LOCKED
    OFFSET 0
  ) AS held ON true
)
SELECT (SELECT count(*) FROM looked)::int AS looked,
  (SELECT last.id FROM looked AS last ORDER BY last.id DESC LIMIT 1) AS mark,
  ARRAY(SELECT going.id FROM going WHERE going.id IS NOT NULL ORDER BY going.id) AS notification_ids,
  ARRAY(SELECT event.id FROM going CROSS JOIN LATERAL unnest(going.event_ids) AS event (id) ORDER BY event.id) AS event_ids
