-- resume_lane: the lane goes on. Resuming it again changes nothing.
--   $1 text  channel   $2 text  actor   $3 text  why
WITH resumed AS (
  UPDATE notifyqueue.lanes AS l
  SET paused_at = NULL, paused_by = NULL, pause_reason = NULL
  WHERE l.channel = $1 AND l.paused_at IS NOT NULL
  RETURNING l.channel
)
INSERT INTO notifyqueue.lane_history (channel, kind, actor, note)
SELECT resumed.channel, 'LANE_RESUMED', $2, $3
FROM resumed
