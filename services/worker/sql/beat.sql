-- beat: says that this worker lives and how its lanes do, and answers how the lanes of all are.
--   $1 uuid  worker   $2 text  phase   $3 text[]  channels, and for each   $4 int[]  concurrency   $5 int[]  in flight
--   $6 bigint[]  sent   $7 bigint[]  unsent
WITH beating AS (
  INSERT INTO notifyqueue.workers AS w (id, phase, channels, concurrency, in_flight, sent, unsent)
  VALUES ($1, $2, $3, $4, $5, $6, $7)
  ON CONFLICT (id) DO UPDATE
  SET phase = excluded.phase, heartbeat_at = clock_timestamp(), channels = excluded.channels,
    concurrency = excluded.concurrency, in_flight = excluded.in_flight, sent = excluded.sent, unsent = excluded.unsent
)
SELECT l.channel, l.paused_at IS NOT NULL AS paused, l.opening, l.opened_at IS NOT NULL AS open,
  -- With bounds, for a clock that is set back must not stretch them: an hour, and a day.
  least(coalesce(extract(epoch FROM l.probe_at - clock_timestamp()), 0), 3600)::float8 AS probe_in,
  CASE WHEN l.held_until > clock_timestamp()  -- the oldest servers cannot subtract from -infinity
    THEN least(extract(epoch FROM l.held_until - clock_timestamp()), 86400) ELSE 0
  END::float8 AS held_for
FROM notifyqueue.lanes AS l
