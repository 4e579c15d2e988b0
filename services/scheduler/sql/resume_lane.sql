-- resume_lane: whatever stops the lane is over, as far as a person can say: its pause, its hold, and the wait for the next
-- probe of its breaker. Where nothing stops it, nothing changes.
--   $1 text  channel   $2 text  actor   $3 text  why
WITH resumed AS (
  UPDATE notifyqueue.lanes AS l
  SET paused_at = NULL, paused_by = NULL, pause_reason = NULL, held_until = '-infinity',
    probe_at = CASE WHEN l.opened_at IS NOT NULL THEN least(l.probe_at, clock_timestamp()) END
  WHERE l.channel = $1
    AND (l.paused_at IS NOT NULL OR l.held_until > clock_timestamp() OR l.probe_at > clock_timestamp())
  RETURNING l.channel
)
INSERT INTO notifyqueue.lane_history (channel, kind, actor, note)
SELECT resumed.channel, 'LANE_RESUMED', $2, $3
FROM resumed
