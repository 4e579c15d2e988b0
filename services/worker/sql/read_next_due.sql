-- read_next_due: in how many seconds the next notification of a lane is due; none where nothing is scheduled. What is
-- due already and was not claimed is locked by somebody else, or a suspect that has to wait.
--   $1 text  channel   $2 boolean  whether suspects count
SELECT extract(epoch FROM min(next.next_attempt_at) - clock_timestamp())::float8 AS seconds
FROM (
  SELECT first.next_attempt_at
  FROM (VALUES (1), (2), (3)) AS class (priority)
  CROSS JOIN LATERAL (
    SELECT n.next_attempt_at
    FROM notifyqueue.notifications AS n
    WHERE n.status = 'PENDING' AND NOT n.waiting AND n.expiries < 2
      AND n.channel = $1 AND n.priority = class.priority
    ORDER BY n.next_attempt_at, n.id
    LIMIT 1
  ) AS first
  UNION ALL
  (
    SELECT n.next_attempt_at
    FROM notifyqueue.notifications AS n
    WHERE n.status = 'PENDING' AND NOT n.waiting AND n.expiries >= 2
      AND n.channel = $1 AND $2::boolean
    ORDER BY n.next_attempt_at, n.id
    LIMIT 1
  )
) AS next
