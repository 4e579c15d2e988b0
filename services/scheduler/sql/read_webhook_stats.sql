-- read_webhook_stats: how a tenant's webhooks stand. Each count looks at no more than 10,001 entries of an index.
--   $1 text  tenant; null: all
SELECT least(fresh.mine, 10000) AS unassigned, fresh.seen > 10000 AS unassigned_bounded,
  least(open.mine, 10000) AS pending, open.seen > 10000 AS pending_bounded,
  least(lost.seen, 10000) AS given_up, lost.seen > 10000 AS given_up_bounded
FROM (
  SELECT count(*) AS seen, count(*) FILTER (WHERE $1::text IS NULL OR e.tenant_id = $1) AS mine
  FROM (SELECT e.tenant_id FROM notifyqueue.webhook_events AS e WHERE e.fanned_out_at IS NULL ORDER BY e.id LIMIT 10001) AS e
) AS fresh
CROSS JOIN (
  SELECT count(*) AS seen, count(*) FILTER (WHERE $1::text IS NULL OR d.tenant_id = $1) AS mine
  FROM (
    SELECT d.tenant_id
    FROM notifyqueue.webhook_deliveries AS d
    WHERE d.delivered_at IS NULL AND d.given_up_at IS NULL
    ORDER BY d.endpoint_id, d.next_attempt_at  -- so that it is read by their index, whatever it is guessed to hold
    LIMIT 10001
  ) AS d
) AS open
CROSS JOIN (
  SELECT count(*) AS seen
  FROM (  -- one of the two, each with a plan of its own
    (
      SELECT d.tenant_id
      FROM notifyqueue.webhook_deliveries AS d
      WHERE d.tenant_id = $1 AND d.given_up_at IS NOT NULL
      LIMIT 10001
    )
    UNION ALL
    (
      SELECT d.tenant_id
      FROM notifyqueue.webhook_deliveries AS d
      WHERE $1::text IS NULL AND d.given_up_at IS NOT NULL
      ORDER BY d.tenant_id
      LIMIT 10001
    )
  ) AS d
) AS lost
