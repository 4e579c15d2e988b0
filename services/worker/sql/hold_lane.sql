-- hold_lane: leaves a lane's provider alone for a while, as it asked for.
--   $1 text  channel   $2 interval  how long
UPDATE notifyqueue.lanes AS l
SET held_until = greatest(l.held_until, clock_timestamp() + $2::interval)
WHERE l.channel = $1
RETURNING l.channel
