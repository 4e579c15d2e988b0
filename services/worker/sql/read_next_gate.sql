-- read_next_gate: in how many seconds the next gate of a lane is due; negative where it is, none where nobody waits.
--   $1 text  channel
SELECT extract(epoch FROM min(next.opens_at) - clock_timestamp())::float8 AS seconds
FROM (
  SELECT g.opens_at
  FROM notifyqueue.recipient_gates AS g
  WHERE g.channel = $1
  ORDER BY g.opens_at
  LIMIT 1
) AS next
