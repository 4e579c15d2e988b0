-- erase_suppressions: of what suppresses these addresses only what stands for them is kept, and goes on to hold; in one
-- statement, so that whoever looks finds the one or the other. Rows are taken as in delete_suppressions.
--   $1 text  tenant   $2 text[]  channels and   $3 text[]  addresses, and   $4 text[]  what stands for each
WITH asked AS MATERIALIZED (
  SELECT s.id, told.pseudonym
  FROM unnest($2::text[], $3::text[], $4::text[]) AS told (channel, address, pseudonym)
  CROSS JOIN LATERAL (
    SELECT o.id
    FROM notifyqueue.suppressions AS o
    WHERE o.tenant_id = $1 AND o.address = notifyqueue.suppressed_form(told.channel, told.address)
      AND o.channel = told.channel
    OFFSET 0
  ) AS s
  ORDER BY s.id DESC
), found AS MATERIALIZED (
  SELECT locked.id, asked.pseudonym, locked.channel, locked.category, locked.source, locked.code, locked.created_by,
    locked.created_at
  FROM asked
  CROSS JOIN LATERAL (
    SELECT s.id, s.channel, s.category, s.source, s.code, s.created_by, s.created_at
    FROM notifyqueue.suppressions AS s
    WHERE s.id = asked.id
    FOR UPDATE
    OFFSET 0
  ) AS locked
), deleted AS (
  DELETE FROM notifyqueue.suppressions AS s
  USING found
  WHERE s.id = found.id
)
INSERT INTO notifyqueue.suppressions (
  tenant_id, channel, address, category, source, code, created_by, created_at, erased
)
SELECT $1, found.channel, found.pseudonym, found.category, found.source, found.code, found.created_by, found.created_at,
  true
FROM found
ORDER BY found.pseudonym, found.channel, found.category, found.source
ON CONFLICT DO NOTHING
