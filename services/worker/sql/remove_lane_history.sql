-- remove_lane_history: up to 1,000 entries of each lane that are old enough, but for those that say why it stands still.
--   $1 interval  how old
DELETE FROM notifyqueue.lane_history AS h
WHERE h.id = ANY (ARRAY(
  SELECT old.id
  FROM notifyqueue.lanes AS l
  CROSS JOIN LATERAL (
    SELECT o.id
    FROM notifyqueue.lane_history AS o
    WHERE o.channel = l.channel AND o.happened_at < now() - $1::interval
      AND NOT (o.kind = 'LANE_PAUSED' AND coalesce(o.happened_at >= l.paused_at, false))
      AND NOT (o.kind = 'BREAKER_OPENED' AND coalesce(o.happened_at >= l.opened_at, false))
    ORDER BY o.happened_at
    LIMIT 1000
  ) AS old
  ORDER BY old.id
))
RETURNING h.id
