-- pause_lane: no claim that begins after this takes a notification of the lane. Pausing it again changes nothing.
--   $1 text  channel   $2 text  actor   $3 text  why
WITH paused AS (
  UPDATE notifyqueue.lanes AS l
  SET paused_at = clock_timestamp(), paused_by = $2, pause_reason = $3
  WHERE l.channel = $1 AND l.paused_at IS NULL
  RETURNING l.channel, l.paused_by, l.pause_reason
)
INSERT INTO notifyqueue.lane_history (channel, kind, actor, note)
SELECT paused.channel, 'LANE_PAUSED', paused.paused_by, paused.pause_reason
FROM paused
