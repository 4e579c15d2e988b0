-- return_slot: a claim that is still ours took a slot and makes no call: its slot goes back, and is looked at at once
-- where somebody waits for it.
--   $1 uuid  notification   $2 uuid  its claim token
WITH held AS MATERIALIZED (
  SELECT n.id
  FROM notifyqueue.notifications AS n
  WHERE n.id = $1 AND n.status = 'PROCESSING' AND n.claim_token = $2
  FOR UPDATE
), returned AS (
  DELETE FROM notifyqueue.recipient_reservations AS r
  USING held
  WHERE r.notification_id = held.id
  RETURNING r.tenant_id, r.limit_key
)
UPDATE notifyqueue.recipient_gates AS g
SET opens_at = least(g.opens_at, now())
FROM returned
WHERE g.tenant_id = returned.tenant_id AND g.limit_key = ANY (notifyqueue.slot_keys(returned.limit_key))
