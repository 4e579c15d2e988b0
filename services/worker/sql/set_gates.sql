-- set_gates: when to look again at recipients for whom somebody waits; their locks are ours.
--   $1 text[]  tenants and   $2 text[]  limit keys, ascending   $3 text[]  channels   $4 interval[]  from now
INSERT INTO notifyqueue.recipient_gates AS g (tenant_id, limit_key, channel, opens_at)
SELECT asked.tenant_id, asked.limit_key, asked.channel, clock_timestamp() + asked.opens_in
FROM unnest($1::text[], $2::text[], $3::text[], $4::interval[]) AS asked (tenant_id, limit_key, channel, opens_in)
ON CONFLICT (tenant_id, limit_key) DO UPDATE SET opens_at = excluded.opens_at
