-- take_probe: whether this worker may send one notification while the breaker is open. If it never says what came of
-- that, another worker may after $4.
--   $1 text  channel   $2 bigint  opening   $3 uuid  the probe's token   $4 interval  how long it may take
UPDATE notifyqueue.lanes AS l
SET probe_at = clock_timestamp() + $4::interval, probe_token = $3
WHERE l.channel = $1 AND l.opening = $2 AND l.opened_at IS NOT NULL
  AND l.paused_at IS NULL AND l.probe_at <= clock_timestamp()
RETURNING l.channel
