-- read_changed: of these notifications those that no longer have the known revision, as they are now; of those that are
-- gone, only the id. Looked up one by one, by key: OFFSET 0 keeps the planner from turning the lookup into a join.
--   $1 uuid[]  notifications   $2 bigint[]  the revisions that are known
SELECT known.id AS known_id, n.id, n.idempotency_key, n.channel, n.address, n.priority, n.status, n.failure_reason,
  n.provider_code, n.provider_message_id, n.due_at, n.next_attempt_at, n.expire_at, n.attempt_count, n.max_attempts,
  n.at_most_once, n.category, n.reference, n.labels, n.template, n.template_version,
  n.subscriber, n.redrive_count, n.revision, n.created_at, n.finished_at
FROM unnest($1::uuid[], $2::bigint[]) AS known (id, revision)
LEFT JOIN LATERAL (
  SELECT o.id, o.idempotency_key, o.channel, o.address, o.priority, o.status, o.failure_reason, o.provider_code,
    o.provider_message_id, o.due_at, o.next_attempt_at, o.expire_at, o.attempt_count, o.max_attempts, o.at_most_once,
    o.category, o.reference, o.labels, o.template, o.template_version,
    o.subscriber, o.redrive_count, o.revision, o.created_at, o.finished_at
  FROM notifyqueue.notifications AS o
  WHERE o.id = known.id
  OFFSET 0
) AS n ON true
WHERE n.revision IS DISTINCT FROM known.revision
