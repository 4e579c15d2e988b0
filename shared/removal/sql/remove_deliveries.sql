-- remove_deliveries: the deliveries of these events that have ended, with their attempts. One that did not stays, and
-- keeps its event.
--   $1 uuid[]  events, ascending
WITH removed AS (
  DELETE FROM notifyqueue.webhook_deliveries AS d
  WHERE d.id = ANY (ARRAY(  -- likewise below: a join would be guessed large, and read the whole table
      SELECT found.id
      FROM unnest($1::uuid[]) AS asked (id)
      CROSS JOIN LATERAL (
        SELECT o.id FROM notifyqueue.webhook_deliveries AS o WHERE o.event_id = asked.id OFFSET 0
      ) AS found
    ))
    AND (d.delivered_at IS NOT NULL OR d.given_up_at IS NOT NULL)
  RETURNING d.id
),
attempts AS (
  DELETE FROM notifyqueue.webhook_attempts AS a
  WHERE a.delivery_id = ANY (ARRAY(SELECT removed.id FROM removed))
  RETURNING a.delivery_id
)
SELECT (SELECT count(*) FROM removed)::int AS deliveries, (SELECT count(*) FROM attempts)::int AS attempts
