-- grant_slots: calls up so many from each of these gates, the most urgent and oldest first, and answers who of which.
-- They can be claimed again, and their slots are kept for them; without a limit there is none to keep. One that somebody
-- is changing just now is passed over. The recipients' locks are ours. To a caller nothing changes but what is due later
-- than now, as the clock may have it: only that counts in `revision`.
--   $1 text[]  tenants   $2 text[]  limit keys   $3 int[]  how many   $4 boolean[]  whether there is a limit
WITH next AS MATERIALIZED (
  SELECT found.id, asked.limited
  FROM unnest($1::text[], $2::text[], $3::int[], $4::boolean[]) AS asked (tenant_id, limit_key, free, limited)
  CROSS JOIN LATERAL (
    SELECT n.id
    FROM notifyqueue.notifications AS n
    WHERE n.waiting AND n.tenant_id = asked.tenant_id AND n.limit_key = asked.limit_key
    ORDER BY n.priority DESC, n.next_attempt_at, n.id
    LIMIT asked.free
    FOR UPDATE SKIP LOCKED
  ) AS found
)
UPDATE notifyqueue.notifications AS n
SET waiting = false, granted = n.id = ANY (ARRAY(SELECT next.id FROM next WHERE next.limited)),
  next_attempt_at = least(n.next_attempt_at, now()), revision = n.revision + (n.next_attempt_at > now())::int
WHERE n.id = ANY (ARRAY(SELECT next.id FROM next))  -- a join would be guessed large, and read the whole table
RETURNING n.id, n.tenant_id, n.limit_key
