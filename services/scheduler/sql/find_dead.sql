-- find_dead: of the oldest 10,000 of a tenant's dead notifications, those that fit a filter, oldest first, with their
-- revisions; those that fit, too, and that a redrive by a filter passes over; and the last id that was looked at, if there
-- may be more above it. Passed over is what cannot be sent any more, and what must not be sent twice and may have been delivered.
-- store.py puts FAILED in place of DEAD_LETTERED: a parameter would lose the partial index.
--   $1 text  tenant   $2 uuid  ids below   $3 uuid  ids from
--   $4 text  channel   $5 text  address   $6 text  reference
--   $7 timestamptz  created since   $8 timestamptz  created before; null: any
WITH scanned AS MATERIALIZED (
  SELECT n.id, n.revision,
    ($4::text IS NULL OR n.channel = $4)
    AND (
      $5::text IS NULL
      OR notifyqueue.suppressed_form(n.channel, n.address) = notifyqueue.suppressed_form($4, $5)
    )
    AND ($6::text IS NULL OR n.reference = $6)
    AND ($7::timestamptz IS NULL OR n.created_at >= $7)
    AND ($8::timestamptz IS NULL OR n.created_at < $8) AS fits,
    (n.expire_at IS NULL OR n.expire_at > now())
    AND NOT (n.at_most_once AND (n.maybe_delivered OR n.failure_reason = 'OUTCOME_UNKNOWN')) AS may
  FROM notifyqueue.notifications AS n
  WHERE n.tenant_id = $1 AND n.status = 'DEAD_LETTERED' AND n.id < $2 AND n.id >= $3
  ORDER BY n.id
  LIMIT 10000
), judged AS MATERIALIZED (
  SELECT s.id, s.revision, s.fits,
    CASE WHEN s.fits AND s.may THEN
      -- A lookup for each, in every plan: what there is to say of all is not read as a whole.
      coalesce((SELECT true FROM notifyqueue.notification_contents AS c WHERE c.notification_id = s.id), false)
    ELSE false END AS may
  FROM scanned AS s
)
SELECT coalesce(array_agg(j.id ORDER BY j.id) FILTER (WHERE j.may), '{}') AS ids,
  coalesce(array_agg(j.revision ORDER BY j.id) FILTER (WHERE j.may), '{}') AS revisions,
  coalesce(array_agg(j.id) FILTER (WHERE j.fits AND NOT j.may), '{}') AS passed_over,
  (array_agg(j.id ORDER BY j.id))[10000] AS scan_end
FROM judged AS j
