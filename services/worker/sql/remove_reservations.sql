-- remove_reservations: up to 5,000 that left their window so long ago.
--   $1 interval  how long
DELETE FROM notifyqueue.recipient_reservations AS r
WHERE r.notification_id = ANY (ARRAY(
  SELECT old.notification_id
  FROM (
    SELECT o.notification_id
    FROM notifyqueue.recipient_reservations AS o
    WHERE o.leaves_at < now() - $1::interval
    ORDER BY o.leaves_at
    LIMIT 5000
  ) AS old
  ORDER BY old.notification_id
))
RETURNING r.notification_id
