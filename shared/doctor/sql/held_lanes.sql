-- held_lanes: lanes whose provider asked for a long rest. `facts` says for how much longer; since when is not recorded.
--   $1 interval  longer than this
SELECT l.channel AS subject, 1::bigint AS count, false AS bounded, '{}'::text[] AS ids, NULL::interval AS age,
  'for another ' || date_trunc('second', l.held_until - now()) AS facts
FROM notifyqueue.lanes AS l
WHERE l.held_until > now() + $1::interval
ORDER BY l.channel
