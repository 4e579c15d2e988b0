-- count_in_flight: how many notifications that a suppression forbids are in a worker's hands. Of all that is, which is as
-- much as all workers hold at once.
--   $1 text  tenant   $2 text  channel, or '': any   $3 text  address, or   $4 text  subscriber
--   $5 text  what stands for the address, for those that have lost it since   $6 text  category, or '': any
--   $7 text  source
WITH held AS MATERIALIZED (
  SELECT n.tenant_id, n.channel, n.address, n.subscriber, n.pseudonym, n.category
  FROM notifyqueue.notifications AS n
  WHERE n.status = 'PROCESSING' AND n.lease_expires_at > '-infinity'
)
SELECT count(*) AS count
FROM held
WHERE held.tenant_id = $1 AND ($2 = '' OR held.channel = $2) AND ($6 = '' OR held.category = $6)
  AND (
    notifyqueue.suppressed_form(held.channel, held.address) = notifyqueue.suppressed_form($2, $3)
    OR held.subscriber = $4
    OR held.pseudonym = $5
  )
  AND NOT ($7 = 'OPTED_OUT' AND EXISTS (
    SELECT FROM notifyqueue.tenants AS t WHERE t.id = held.tenant_id AND held.category = ANY (t.required_categories)
  ))
