-- open_breaker: gives a lane's provider up for a while, for all workers; once, whoever is first. Not for what was seen
-- before the last opening.
--   $1 text  channel   $2 bigint  the last opening that was known   $3 text  cause
--   $4 interval  until the first probe   $5 uuid  worker
WITH opened AS (
  UPDATE notifyqueue.lanes AS l
  SET opening = l.opening + 1, opened_at = clock_timestamp(), cause = $3, probe_delay = $4,
    probe_at = clock_timestamp() + $4::interval
  WHERE l.channel = $1 AND l.opening = $2 AND l.opened_at IS NULL
  RETURNING l.channel, l.cause
), noted AS (
  INSERT INTO notifyqueue.lane_history (channel, kind, cause, worker_id)
  SELECT opened.channel, 'BREAKER_OPENED', opened.cause, $5
  FROM opened
)
SELECT opened.channel
FROM opened
