-- set_gates: when to look again at recipients for whom somebody waits; their locks are ours. Where the limit was changed
-- after the window was read: at once.
--   $1 text[]  tenants and   $2 text[]  limit keys, ascending   $3 text[]  channels   $4 interval[]  from now
--   $5 smallint[]  limits and   $6 interval[]  windows by which that was found, as of read_windows
INSERT INTO notifyqueue.recipient_gates AS g (tenant_id, limit_key, channel, opens_at)
SELECT asked.tenant_id, asked.limit_key, asked.channel, clock_timestamp() + CASE WHEN (
    SELECT t.recipient_limit IS NOT DISTINCT FROM asked.recipient_limit
      AND coalesce(t.recipient_window + least(t.recipient_window / 10, interval '1 second'), '0') = asked.length
    FROM notifyqueue.tenants AS t
    WHERE t.id = asked.tenant_id
  ) THEN asked.opens_in ELSE '0' END
FROM unnest($1::text[], $2::text[], $3::text[], $4::interval[], $5::smallint[], $6::interval[])
  AS asked (tenant_id, limit_key, channel, opens_in, recipient_limit, length)
ON CONFLICT (tenant_id, limit_key) DO UPDATE SET opens_at = excluded.opens_at
