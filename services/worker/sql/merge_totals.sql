-- merge_totals: adds up to 5,000 deltas to the totals they belong to, each once, whoever else does the same: those that
-- another holds are passed over, and one that it has merged meanwhile is gone. What fails halfway has merged nothing.
-- Rows that are held and never updated stay where they are, so they are deleted by their place: by id, a plan that was
-- made while the table was empty reads all of it, for each of them.
WITH taken AS MATERIALIZED (
  SELECT d.ctid AS place
  FROM notifyqueue.status_deltas AS d
  ORDER BY d.id
  LIMIT 5000
  FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM notifyqueue.status_deltas AS d
  WHERE d.ctid = ANY (ARRAY(SELECT taken.place FROM taken))
  RETURNING d.tenant_id, d.channel, d.status, d.count
), merged AS (
  INSERT INTO notifyqueue.status_totals AS t (tenant_id, channel, status, count)
  SELECT gone.tenant_id, gone.channel, gone.status, sum(gone.count)
  FROM gone
  GROUP BY gone.tenant_id, gone.channel, gone.status
  ORDER BY gone.tenant_id, gone.channel, gone.status
  ON CONFLICT (tenant_id, channel, status) DO UPDATE SET count = t.count + excluded.count
)
SELECT count(*)::int AS merged
FROM taken
