-- read_notifications: these notifications of these tenants, as they are now; another tenant's is not found.
--   $1 text[]  tenants   $2 uuid[]  ids
SELECT n.id, n.idempotency_key, n.channel, n.address, n.priority, n.status, n.failure_reason, n.provider_code,
  n.provider_message_id, n.due_at, n.next_attempt_at, n.expire_at, n.attempt_count, n.max_attempts, n.at_most_once,
  n.category, n.reference, n.labels, n.template, n.template_version,
  n.subscriber, n.redrive_count, n.revision, n.created_at, n.finished_at
FROM unnest($1::text[], $2::uuid[]) AS asked (tenant_id, id)
JOIN notifyqueue.notifications AS n ON n.id = asked.id AND n.tenant_id = asked.tenant_id
