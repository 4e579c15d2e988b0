-- delete_suppressions: takes away, or only counts, the newest suppressions of a source that were put since a time: answers
-- how many, the id of the last that was looked at, and how many more there are below it, up to 10,001. Rows are taken in
-- descending order of their ids, by key; what another has taken away meanwhile is not counted.
--   $1 text  tenant   $2 text  source   $3 timestamptz  since   $4 uuid  ids below   $5 uuid  ids from
--   $6 int  at most   $7 boolean  only count
WITH asked AS MATERIALIZED (
  SELECT s.id
  FROM notifyqueue.suppressions AS s
  WHERE s.tenant_id = $1 AND s.source = $2 AND s.id < $4 AND s.id >= $5 AND s.created_at >= $3
  ORDER BY s.id DESC
  LIMIT $6
), found AS MATERIALIZED (
  SELECT locked.id
  FROM asked
  CROSS JOIN LATERAL (
    SELECT s.id
    FROM notifyqueue.suppressions AS s
    WHERE s.id = asked.id
    FOR UPDATE
    OFFSET 0
  ) AS locked
), deleted AS (
  DELETE FROM notifyqueue.suppressions AS s
  USING found
  WHERE s.id = found.id AND NOT $7::boolean
)
SELECT (SELECT count(*) FROM found) AS deleted, (SELECT min(asked.id::text)::uuid FROM asked) AS scan_end, (
    SELECT count(*)
    FROM (
      SELECT
      FROM notifyqueue.suppressions AS s
      WHERE s.tenant_id = $1 AND s.source = $2 AND s.created_at >= $3 AND s.id >= $5
        AND s.id < (SELECT min(asked.id::text)::uuid FROM asked)
      LIMIT 10001
    ) AS more
  ) AS remaining
