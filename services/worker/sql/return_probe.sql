-- return_probe: a probe that was taken was not sent; another may be, in a moment. Not where one was taken since.
--   $1 text  channel   $2 bigint  opening   $3 uuid  the probe's token
UPDATE notifyqueue.lanes AS l
SET probe_at = clock_timestamp() + interval '1 second'
WHERE l.channel = $1 AND l.opening = $2 AND l.probe_token = $3 AND l.opened_at IS NOT NULL
RETURNING l.channel
