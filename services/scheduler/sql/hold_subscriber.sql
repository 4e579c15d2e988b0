-- hold_subscriber: a subscriber, who is nobody else's until the transaction ends: what is being written for him is waited
-- for, and what comes later waits, and finds him as he is then.
--   $1 text  tenant   $2 text  name
SELECT s.id, s.email, s.phone, s.push
FROM notifyqueue.subscribers AS s
WHERE s.tenant_id = $1 AND s.name = $2
FOR UPDATE
