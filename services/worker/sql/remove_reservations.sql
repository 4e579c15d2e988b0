-- remove_reservations: up to 5,000 of each tenant that have left its window for so long; all where it has none.
--   $1 interval  how long
DELETE FROM notifyqueue.recipient_reservations AS r
WHERE r.notification_id = ANY (ARRAY(
  SELECT old.notification_id
  FROM notifyqueue.tenants AS t
  CROSS JOIN LATERAL (
    SELECT o.notification_id
    FROM notifyqueue.recipient_reservations AS o
    WHERE o.tenant_id = t.id AND o.started_at < now() - $1::interval - coalesce(t.recipient_window, '0')
    ORDER BY o.started_at
    LIMIT 5000
  ) AS old
  ORDER BY old.notification_id
))
RETURNING r.notification_id
