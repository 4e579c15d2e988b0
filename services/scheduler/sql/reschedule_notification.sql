-- reschedule_notification: gives what nobody has taken another due time, another priority, or both, and answers it as it
-- is then; with its other status where it was taken or has ended. A claim that is under way is waited for, and then
-- wins. What stands so already is left alone, so that the same call again changes nothing. With a new due time it is
-- tried then, not after its backoff; and what waited at a gate, or had a slot there, is claimed, and
-- judged, anew.
--   $1 text  tenant   $2 uuid  notification   $3 timestamptz  due at   $4 smallint  priority; null: as it was
--   $5 text  actor   $6 text  why
WITH found AS MATERIALIZED (
  SELECT n.id, n.idempotency_key, n.channel, n.address, n.priority, n.status, n.failure_reason, n.provider_code,
    n.provider_message_id, n.due_at, n.next_attempt_at, n.expire_at, n.attempt_count, n.max_attempts, n.at_most_once,
    n.category, n.reference, n.labels, n.template, n.template_version,
    n.subscriber, n.redrive_count, n.revision, n.created_at, n.finished_at,
    (n.priority <> $4) IS TRUE OR CASE WHEN $3::timestamptz IS NULL THEN false
      ELSE n.due_at <> $3 OR n.next_attempt_at NOT BETWEEN $3 AND greatest($3::timestamptz, now())
    END AS moves
  FROM notifyqueue.notifications AS n
  WHERE n.tenant_id = $1 AND n.id = $2
  FOR UPDATE
), moved AS (
  UPDATE notifyqueue.notifications AS n
  SET due_at = coalesce($3::timestamptz, n.due_at), priority = coalesce($4::smallint, n.priority),
    next_attempt_at = CASE WHEN $3::timestamptz IS NULL THEN n.next_attempt_at ELSE greatest($3::timestamptz, now()) END,
    waiting = false, granted = false, revision = n.revision + 1
  FROM found
  WHERE n.id = found.id AND found.status = 'PENDING' AND found.moves
  RETURNING n.id, n.priority, n.due_at, n.next_attempt_at, n.revision
), noted AS (
  INSERT INTO notifyqueue.notification_history (notification_id, kind, actor, note)
  SELECT moved.id, 'RESCHEDULED', $5, $6
  FROM moved
)
SELECT found.id, found.idempotency_key, found.channel, found.address, coalesce(moved.priority, found.priority) AS priority,
  found.status, found.failure_reason, found.provider_code, found.provider_message_id,
  coalesce(moved.due_at, found.due_at) AS due_at,
  coalesce(moved.next_attempt_at, found.next_attempt_at) AS next_attempt_at,
  found.expire_at, found.attempt_count, found.max_attempts, found.at_most_once, found.category, found.reference,
  found.labels, found.template, found.template_version,
  found.subscriber, found.redrive_count, coalesce(moved.revision, found.revision) AS revision, found.created_at,
  found.finished_at
FROM found
LEFT JOIN moved ON moved.id = found.id
