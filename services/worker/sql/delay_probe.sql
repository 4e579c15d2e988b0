-- delay_probe: a probe failed; the next one comes after twice the delay.
--   $1 text  channel   $2 bigint  opening   $3 interval  the longest delay
UPDATE notifyqueue.lanes AS l
SET probe_delay = least(l.probe_delay * 2, $3::interval),
  probe_at = clock_timestamp() + least(l.probe_delay * 2, $3::interval)
WHERE l.channel = $1 AND l.opening = $2 AND l.opened_at IS NOT NULL
RETURNING l.channel
