-- paused_lanes: lanes that somebody paused a long while ago.
--   $1 interval  a long while
SELECT l.channel AS subject, 1::bigint AS count, false AS bounded, '{}'::text[] AS ids, now() - l.paused_at AS age,
  'by ' || coalesce(nullif(l.paused_by, ''), 'nobody') AS facts
FROM notifyqueue.lanes AS l
WHERE l.paused_at < now() - $1::interval
ORDER BY l.channel
