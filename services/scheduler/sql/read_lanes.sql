-- read_lanes: every lane, as all workers see it.
SELECT l.channel, l.paused_at, l.paused_by, l.pause_reason, l.opened_at, l.cause, l.probe_at,
  CASE WHEN l.held_until > clock_timestamp() THEN l.held_until END AS held_until
FROM notifyqueue.lanes AS l
ORDER BY CASE l.channel WHEN 'EMAIL' THEN 1 WHEN 'SMS' THEN 2 ELSE 3 END
