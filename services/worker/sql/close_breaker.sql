-- close_breaker: a probe was answered, so the lane goes on; once for each opening.
--   $1 text  channel   $2 bigint  opening   $3 uuid  worker
WITH closed AS (
  UPDATE notifyqueue.lanes AS l
  SET opened_at = NULL, cause = NULL, probe_at = NULL, probe_delay = NULL, probe_token = NULL
  WHERE l.channel = $1 AND l.opening = $2 AND l.opened_at IS NOT NULL
  RETURNING l.channel
), noted AS (
  INSERT INTO notifyqueue.lane_history (channel, kind, worker_id)
  SELECT closed.channel, 'BREAKER_CLOSED', $3
  FROM closed
)
SELECT closed.channel
FROM closed
