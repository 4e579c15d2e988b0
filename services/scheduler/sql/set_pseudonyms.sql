-- set_pseudonyms: what is yet to go to these addresses, where they are suppressed, gets what stands for them if it lacks that,
-- as what was accepted by an older version: so the suppressions that lose the address next go on to hold for it. Rows are
-- taken as in cancel_notifications.
--   $1 text  tenant   $2 text[]  channels and   $3 text[]  addresses, and   $4 text[]  what stands for each
WITH suppressed AS MATERIALIZED (
  SELECT told.channel, told.address, told.pseudonym
  FROM unnest($2::text[], $3::text[], $4::text[]) AS told (channel, address, pseudonym)
  WHERE EXISTS (
    SELECT FROM notifyqueue.suppressions AS s
    WHERE s.tenant_id = $1 AND s.address = notifyqueue.suppressed_form(told.channel, told.address)
      AND s.channel = told.channel
  )
), asked AS MATERIALIZED (
  SELECT lacking.id, suppressed.pseudonym
  FROM suppressed
  CROSS JOIN LATERAL (
    SELECT n.id
    FROM notifyqueue.notifications AS n
    WHERE n.tenant_id = $1 AND n.channel = suppressed.channel AND n.pseudonym IS NULL
      AND notifyqueue.suppressed_form(n.channel, n.address)
        = notifyqueue.suppressed_form(suppressed.channel, suppressed.address)
      AND n.status IN ('PENDING', 'PROCESSING')
    OFFSET 0
  ) AS lacking
  ORDER BY lacking.id
), found AS MATERIALIZED (
  SELECT locked.id, asked.pseudonym
  FROM asked
  CROSS JOIN LATERAL (
    SELECT n.id
    FROM notifyqueue.notifications AS n
    WHERE n.id = asked.id
    FOR UPDATE
    OFFSET 0
  ) AS locked
)
UPDATE notifyqueue.notifications AS n
SET pseudonym = found.pseudonym
FROM found
WHERE n.id = found.id
