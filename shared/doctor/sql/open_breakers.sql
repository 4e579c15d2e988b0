-- open_breakers: lanes whose breaker opened a while ago, and why.
--   $1 interval  a while
SELECT l.channel AS subject, 1::bigint AS count, false AS bounded, '{}'::text[] AS ids, now() - l.opened_at AS age,
  'cause ' || l.cause AS facts
FROM notifyqueue.lanes AS l
WHERE l.opened_at < now() - $1::interval
ORDER BY l.channel
