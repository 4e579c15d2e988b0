-- move_mark: the sweep whose mark this transaction holds has looked as far as this. One that has caught up begins again
-- with the first event of all when it did so long enough ago: what could not go then may go now.
--   $1 text  sweep   $2 uuid  the last event that it looked at   $3 boolean  it has caught up
--   $4 interval  how often to begin again; null: never
UPDATE notifyqueue.retention_marks AS m
SET mark = CASE WHEN again.due THEN '00000000-0000-0000-0000-000000000000'::uuid ELSE $2::uuid END,
    begun_at = CASE WHEN again.due THEN now() ELSE m.begun_at END
FROM (
  SELECT o.sweep, coalesce($3::boolean AND o.begun_at < now() - $4::interval, false) AS due
  FROM notifyqueue.retention_marks AS o
  WHERE o.sweep = $1
) AS again
WHERE m.sweep = again.sweep
