-- count_in_flight: how many notifications that a suppression forbids are in a worker's hands. Of all that is, which is as
-- much as all workers hold at once.
--   $1 text  tenant   $2 text  channel   $3 text  address   $4 text  category, or ''   $5 text  source
WITH held AS MATERIALIZED (
  SELECT n.tenant_id, n.channel, n.address, n.category
  FROM notifyqueue.notifications AS n
  WHERE n.status = 'PROCESSING' AND n.lease_expires_at > '-infinity'
)
SELECT count(*) AS count
FROM held
WHERE held.tenant_id = $1 AND held.channel = $2 AND ($4 = '' OR held.category = $4)
  AND notifyqueue.suppressed_form(held.channel, held.address) = notifyqueue.suppressed_form($2, $3)
  AND NOT ($5 = 'OPTED_OUT' AND EXISTS (
    SELECT FROM notifyqueue.tenants AS t WHERE t.id = held.tenant_id AND held.category = ANY (t.required_categories)
  ))
