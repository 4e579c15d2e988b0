-- redrive_notifications: sends these back to PENDING, as if they had never been tried, and answers how it found each and
-- what stood against it: its STATUS, that it would be EXPIRED when its turn comes, or that there is nothing left to send.
-- Rows are taken as in cancel_notifications. Where revisions are given, only what has not changed since is redriven, so of
-- many who found the same ones one redrives each. That it may have been delivered is kept, for no redrive undoes it, and so
-- is the provider's last code, until the next attempt.
--   $1 text  tenant   $2 uuid[]  notifications, ascending   $3 bigint[]  their revisions; null: any
--   $4 interval[]  from now until each is due   $5 smallint  attempts that each may have
--   $6 text  actor   $7 text  why   $8 text  the span that asks; null: nobody traces it, and what follows is not linked
--                                            to the attempt that died either
WITH found AS MATERIALIZED (
  SELECT locked.id, locked.channel, locked.status, locked.redrive_count, asked.delay,
    CASE
      WHEN locked.status NOT IN ('FAILED', 'DEAD_LETTERED') OR locked.revision <> asked.revision THEN 'STATUS'
      WHEN locked.expire_at <= now() + asked.delay THEN 'EXPIRED'
      WHEN NOT notifyqueue.has_content(locked.id) THEN 'CONTENT_ERASED'
    END AS obstacle
  FROM unnest($2::uuid[], $3::bigint[], $4::interval[]) AS asked (id, revision, delay)
  CROSS JOIN LATERAL (
    SELECT n.id, n.channel, n.status, n.redrive_count, n.revision, n.expire_at
    FROM notifyqueue.notifications AS n
    WHERE n.tenant_id = $1 AND n.id = asked.id
    FOR UPDATE
    OFFSET 0
  ) AS locked
), redriven AS (
  UPDATE notifyqueue.notifications AS n
  SET status = 'PENDING', next_attempt_at = now() + found.delay, attempt_count = 0, max_attempts = $5::smallint,
    reconciliation_granted = false, expiries = 0, started_at = NULL,
    maybe_delivered = n.maybe_delivered OR n.failure_reason = 'OUTCOME_UNKNOWN', failure_reason = NULL,
    finished_at = NULL, redrive_count = n.redrive_count + 1, last_redriven_at = now(),
    last_trace_context = $8, revision = n.revision + 1
  FROM found
  WHERE n.id = found.id AND found.status IN ('FAILED', 'DEAD_LETTERED') AND found.obstacle IS NULL
  RETURNING n.id
), noted AS (
  INSERT INTO notifyqueue.notification_history (notification_id, kind, actor, note)
  SELECT redriven.id, 'REDRIVEN', $6, $7
  FROM redriven
)
SELECT found.id, found.channel, found.status, found.redrive_count, found.obstacle
FROM found
