-- claim_due: up to 64 due notifications of a lane for one worker, most urgent first, with what it needs to deliver them.
-- Disjoint under any number of claimers, never more than the limit, and its cost follows what it takes, not what is
-- scheduled for later: each class is an equality in the claim index, and the due time a range. Crash suspects stand in
-- an index of their own, and at most one is taken. None of a paused lane. What is suppressed is claimed, too, with what
-- suppresses it: its holder ends it. store.py puts other limits in place of 64.
--   $1 text        channel
--   $2 smallint[]  classes in the order to visit; from the bottom, to let the low ones breathe
--   $3 interval    only what has been due for at least this long
--   $4 uuid        claim token, made before asking, so that a lost answer can be given back
--   $5 uuid        worker
--   $6 interval    lease
--   $7 boolean     whether a suspect may be taken
WITH lane AS MATERIALIZED (
  SELECT l.channel
  FROM notifyqueue.lanes AS l
  WHERE l.channel = $1 AND l.paused_at IS NULL
), suspect AS MATERIALIZED (
  SELECT n.id
  FROM notifyqueue.notifications AS n
  WHERE n.status = 'PENDING' AND NOT n.waiting AND n.expiries >= 2
    AND $7::boolean AND EXISTS (SELECT FROM lane)
    AND n.channel = $1
    AND n.next_attempt_at <= now() - $3::interval
    AND n.attempt_count < n.max_attempts
  ORDER BY n.next_attempt_at, n.id
  LIMIT 1
  FOR UPDATE SKIP LOCKED
), due AS MATERIALIZED (  -- a fence: re-evaluated, the limit would claim too many
  SELECT next.id
  FROM unnest($2::smallint[]) AS class (priority)
  CROSS JOIN LATERAL (
    SELECT n.id
    FROM notifyqueue.notifications AS n
    WHERE n.status = 'PENDING' AND NOT n.waiting AND n.expiries < 2
      AND EXISTS (SELECT FROM lane)
      AND n.channel = $1 AND n.priority = class.priority
      AND n.next_attempt_at <= now() - $3::interval
      AND n.attempt_count < n.max_attempts
    ORDER BY n.next_attempt_at, n.id
    LIMIT 64
    FOR UPDATE SKIP LOCKED
  ) AS next
  LIMIT 64
), taken AS MATERIALIZED (
  SELECT suspect.id FROM suspect
  UNION ALL
  SELECT due.id FROM due
  LIMIT 64
)
UPDATE notifyqueue.notifications AS n
SET status = 'PROCESSING', claim_token = $4, worker_id = $5, lease_expires_at = now() + $6::interval,
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
    WHERE (said.category IN ('', n.category)) IS TRUE  -- no index condition: it would be two searches
      AND NOT (said.source = 'OPTED_OUT' AND EXISTS (
        SELECT FROM notifyqueue.tenants AS t WHERE t.id = n.tenant_id AND n.category = ANY (t.required_categories)
      ))
  ) AS suppressed_by
