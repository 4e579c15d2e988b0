-- fan_out_events: events become deliveries, one for each endpoint of their tenant that is enabled now, was
-- named before the event and asks for its type. Each event once, whoever else does this, in whatever order they commit:
-- what counts is the row's own mark. The endpoints are held, ascending, from before their deliveries are written, and
-- made due. The body is written here once, with its keys in this order.
--   $1 int  at most so many events; with a parameter it is planned for the table as it is, not as it once was
WITH picked AS MATERIALIZED (
  SELECT e.id, e.tenant_id, e.status, e.occurred_at, 'notification.' || lower(e.status) AS type
  FROM notifyqueue.webhook_events AS e
  WHERE e.fanned_out_at IS NULL
  ORDER BY e.id
  LIMIT $1
  FOR UPDATE SKIP LOCKED
),
wanted AS MATERIALIZED (
  SELECT found.id
  FROM (SELECT DISTINCT picked.tenant_id FROM picked) AS asked
  CROSS JOIN LATERAL (  -- a join would read everybody's endpoints for those of a few tenants
    SELECT e.id
    FROM notifyqueue.webhook_endpoints AS e
    WHERE e.tenant_id = asked.tenant_id AND e.deleted_at IS NULL AND e.enabled
    OFFSET 0
  ) AS found
  ORDER BY found.id
),
held AS MATERIALIZED (
  SELECT found.id, found.tenant_id, found.event_types, found.created_at, found.next_due_at
  FROM wanted
  CROSS JOIN LATERAL (
    SELECT e.id, e.tenant_id, e.event_types, e.created_at, e.next_due_at, e.enabled
    FROM notifyqueue.webhook_endpoints AS e
    WHERE e.id = wanted.id
    FOR NO KEY UPDATE
    OFFSET 0
  ) AS found
  WHERE found.enabled
),
written AS (
  INSERT INTO notifyqueue.webhook_deliveries (event_id, endpoint_id, tenant_id)
  SELECT picked.id, held.id, picked.tenant_id
  FROM picked
  JOIN held ON held.tenant_id = picked.tenant_id
    AND held.created_at < picked.occurred_at
    AND CASE
      WHEN cardinality(held.event_types) = 0 THEN picked.status <> 'CANCELLED'
      ELSE picked.type = ANY (held.event_types)
    END
  RETURNING event_id, endpoint_id
),
marked AS (
  UPDATE notifyqueue.webhook_events AS e
  SET fanned_out_at = now(),
      body = CASE WHEN e.id IN (SELECT written.event_id FROM written) THEN convert_to(  -- row_to_json: no spaces
        row_to_json((
          SELECT whole FROM (
            SELECT 'notification.' || lower(e.status) AS "type",
              to_char(e.occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS "timestamp",
              row_to_json((
                SELECT facts FROM (
                  SELECT e.id AS event_id, e.notification_id, e.status, e.attempt_count, e.channel, e.failure_reason,
                    e.reference, e.labels
                ) AS facts
              )) AS data
          ) AS whole
        ))::text,
        'UTF8'
      ) END
  WHERE e.id = ANY (ARRAY(SELECT picked.id FROM picked))  -- a join would read the whole table for a few of them
),
moved AS (
  UPDATE notifyqueue.webhook_endpoints AS e
  SET next_due_at = now()
  WHERE e.id = ANY (ARRAY(  -- likewise
    SELECT held.id FROM held
    WHERE held.next_due_at > now() AND held.id IN (SELECT written.endpoint_id FROM written)
  ))
)
SELECT (SELECT count(*) FROM picked)::int AS events, (SELECT count(*) FROM written)::int AS deliveries
