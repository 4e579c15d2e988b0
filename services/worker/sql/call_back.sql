-- call_back: these were called up in lanes that have stopped since, and wait again, for what goes to their recipients on
-- other channels can start in their slots. Their gates are due at once, to be opened when their lanes go on. One that
-- somebody is claiming just now is passed over: it starts. The recipients' locks are ours.
--   $1 uuid[]  notifications, ascending
WITH stalled AS MATERIALIZED (
  SELECT found.id
  FROM unnest($1::uuid[]) AS asked (id)
  CROSS JOIN LATERAL (
    SELECT n.id, n.status, n.granted
    FROM notifyqueue.notifications AS n
    WHERE n.id = asked.id
    FOR UPDATE SKIP LOCKED
    OFFSET 0
  ) AS found
  WHERE found.status = 'PENDING' AND found.granted
), back AS (
  UPDATE notifyqueue.notifications AS n
  SET waiting = true, granted = false
  FROM stalled
  WHERE n.id = stalled.id
  RETURNING n.id, n.tenant_id, n.limit_key, n.channel
), gated AS (
  INSERT INTO notifyqueue.recipient_gates AS g (tenant_id, limit_key, channel, opens_at)
  SELECT DISTINCT back.tenant_id, back.limit_key, back.channel, now()
  FROM back
  ORDER BY back.tenant_id, back.limit_key
  ON CONFLICT (tenant_id, limit_key) DO UPDATE SET opens_at = least(g.opens_at, excluded.opens_at)
)
SELECT back.id
FROM back
