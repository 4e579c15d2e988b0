-- remove_events: those of these events that were fanned out and have no delivery any more.
--   $1 uuid[]  events, ascending
DELETE FROM notifyqueue.webhook_events AS e
WHERE e.id = ANY (ARRAY(SELECT asked.id FROM unnest($1::uuid[]) AS asked (id)))  -- plain, it would be guessed large
  AND e.fanned_out_at IS NOT NULL
  AND (SELECT d.id FROM notifyqueue.webhook_deliveries AS d WHERE d.event_id = e.id LIMIT 1) IS NULL
RETURNING e.id
