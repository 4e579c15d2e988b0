-- start_admitted: these claims, which this transaction holds, start now: from now on a call may have been made. Each takes
-- a slot, or takes its own anew; none where its tenant has no limit any more. Rows are taken as in mark_sent.
--   $1 uuid[]  notifications, ascending   $2 text[]  tenants   $3 text[]  limit keys; null: no slot
--   $4 interval[]  windows   $5 interval  lease, from now on
WITH clock AS MATERIALIZED (  -- one time for all: who starts together leaves the window together
  SELECT clock_timestamp() AS now
), starting AS MATERIALIZED (
  SELECT found.id, asked.tenant_id, asked.limit_key, asked.length, clock.now
  FROM clock
  CROSS JOIN unnest($1::uuid[], $2::text[], $3::text[], $4::interval[]) AS asked (id, tenant_id, limit_key, length)
  CROSS JOIN LATERAL (
    SELECT n.id, n.status
    FROM notifyqueue.notifications AS n
    WHERE n.id = asked.id
    FOR UPDATE
    OFFSET 0
  ) AS found
  WHERE found.status = 'PROCESSING'
), reserved AS (
  INSERT INTO notifyqueue.recipient_reservations AS r (notification_id, tenant_id, limit_key, started_at, leaves_at)
  SELECT starting.id, starting.tenant_id, starting.limit_key, starting.now, starting.now + starting.length
  FROM starting
  WHERE starting.limit_key IS NOT NULL
  ON CONFLICT (notification_id) DO UPDATE
  SET tenant_id = excluded.tenant_id, limit_key = excluded.limit_key, started_at = excluded.started_at,
    leaves_at = excluded.leaves_at
)
UPDATE notifyqueue.notifications AS n
SET started_at = starting.now, lease_expires_at = now() + $5::interval, granted = false
FROM starting
WHERE n.id = starting.id
