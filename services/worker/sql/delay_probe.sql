-- delay_probe: a probe failed; the next one comes after twice the delay. Not where another probe was taken since.
--   $1 text  channel   $2 bigint  opening   $3 uuid  the probe's token   $4 interval  the longest delay
UPDATE notifyqueue.lanes AS l
SET probe_delay = least(l.probe_delay * 2, $4::interval),
  probe_at = clock_timestamp() + least(l.probe_delay * 2, $4::interval)
WHERE l.channel = $1 AND l.opening = $2 AND l.probe_token = $3 AND l.opened_at IS NOT NULL
RETURNING l.channel
