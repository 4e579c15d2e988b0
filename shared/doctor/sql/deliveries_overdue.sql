-- deliveries_overdue: deliveries that have been due for a while, up to 1,001, of the first 1,000 endpoints that take them:
-- enabled, and not paused meanwhile, or deleted, where they are to be given up. The ids are the endpoints'.
--   $1 interval  a while
SELECT '' AS subject, least(count(*), 1000) AS count, count(*) > 1000 AS bounded,
  (array_agg(DISTINCT due.endpoint_id::text))[1:5] AS ids, now() - min(due.next_attempt_at) AS age, '' AS facts
FROM (
  SELECT late.endpoint_id, late.next_attempt_at
  FROM (
    SELECT e.id
    FROM notifyqueue.webhook_endpoints AS e
    WHERE e.enabled AND e.paused_until < now() - $1::interval OR e.deleted_at < now() - $1::interval
    ORDER BY e.id
    LIMIT 1000
  ) AS endpoint
  CROSS JOIN LATERAL (
    SELECT d.endpoint_id, d.next_attempt_at
    FROM notifyqueue.webhook_deliveries AS d
    WHERE d.endpoint_id = endpoint.id AND d.delivered_at IS NULL AND d.given_up_at IS NULL
      AND d.next_attempt_at < now() - $1::interval
    ORDER BY d.next_attempt_at, d.id
    LIMIT 1001
  ) AS late
  LIMIT 1001
) AS due
HAVING count(*) > 0
