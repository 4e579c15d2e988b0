-- open_breaker: gives a lane's provider up for a while, for all workers; once, whoever is first.
--   $1 text  channel   $2 text  cause   $3 interval  until the first probe   $4 uuid  worker
WITH opened AS (
  UPDATE notifyqueue.lanes AS l
  SET opening = l.opening + 1, opened_at = clock_timestamp(), cause = $2, probe_delay = $3,
    probe_at = clock_timestamp() + $3::interval
  WHERE l.channel = $1 AND l.opened_at IS NULL
  RETURNING l.channel, l.cause
), noted AS (
  INSERT INTO notifyqueue.lane_history (channel, kind, cause, worker_id)
  SELECT opened.channel, 'BREAKER_OPENED', opened.cause, $4
  FROM opened
)
SELECT opened.channel
FROM opened
