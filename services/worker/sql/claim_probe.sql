-- claim_probe: one due notification of a lane whose breaker is open, with what it needs to deliver it: of the first eight
-- of each class one that has failed least, and rather none that may be sent only once. By chance among equals, so that no
-- notification stands in the others' way for ever. What is suppressed is claimed, too, as in claim_due.
--   $1 text  channel   $2 uuid  claim token   $3 uuid  worker   $4 interval  lease
WITH heads AS MATERIALIZED (
  SELECT head.id, head.attempt_count, head.at_most_once
  FROM (VALUES (3), (2), (1)) AS class (priority)
  CROSS JOIN LATERAL (
    SELECT n.id, n.attempt_count, n.at_most_once
    FROM notifyqueue.notifications AS n
    WHERE n.status = 'PENDING' AND NOT n.waiting AND n.expiries < 2
      AND n.channel = $1 AND n.priority = class.priority
      AND n.next_attempt_at <= now()
      AND n.attempt_count < n.max_attempts
    ORDER BY n.next_attempt_at, n.id
    LIMIT 8
    FOR UPDATE SKIP LOCKED
  ) AS head
), taken AS MATERIALIZED (
  SELECT heads.id
  FROM heads
  ORDER BY heads.at_most_once, heads.attempt_count, random()
  LIMIT 1
)
UPDATE notifyqueue.notifications AS n
SET status = 'PROCESSING', claim_token = $2, worker_id = $3, lease_expires_at = now() + $4::interval,
  attempt_count = n.attempt_count + 1, started_at = NULL, revision = n.revision + 1
FROM taken
LEFT JOIN notifyqueue.notification_contents AS c ON c.notification_id = taken.id
WHERE n.id = taken.id AND n.status = 'PENDING'
RETURNING n.id, n.address, n.attempt_count, n.max_attempts, n.at_most_once, n.reconciliation_granted,
  n.maybe_delivered, n.expiries, n.expire_at - now() AS time_left, c.content, n.tenant_id, n.subscriber, n.granted,
  extract(epoch FROM now() - greatest(n.next_attempt_at, n.created_at))::float8 AS late_by,
  n.next_attempt_at <= n.created_at AS due_at_once,
  n.trace_context, n.last_trace_context, n.created_at > now() - interval '15 minutes' AS recent,
  (SELECT t.recipient_limit IS NOT NULL FROM notifyqueue.tenants AS t WHERE t.id = n.tenant_id) AS limited,
  ARRAY(
    SELECT said.source
    FROM (
      SELECT s.source, s.category
      FROM notifyqueue.suppressions AS s
      WHERE s.tenant_id = n.tenant_id AND s.channel = n.channel
        AND s.address = ANY (ARRAY[notifyqueue.suppressed_form(n.channel, n.address), n.pseudonym])
      UNION ALL
      SELECT o.source, o.category
      FROM notifyqueue.suppressions AS o
      WHERE o.tenant_id = n.tenant_id AND o.subscriber = n.subscriber AND (o.channel IN ('', n.channel)) IS TRUE
    ) AS said
    WHERE (said.category IN ('', n.category)) IS TRUE  -- as in claim_due
      AND NOT (said.source = 'OPTED_OUT' AND EXISTS (
        SELECT FROM notifyqueue.tenants AS t WHERE t.id = n.tenant_id AND n.category = ANY (t.required_categories)
      ))
  ) AS suppressed_by
