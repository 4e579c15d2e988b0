-- The spans that what happens next hangs on: a W3C traceparent, and after a space its tracestate. Null: nobody traced it.

ALTER TABLE notifyqueue.notifications
  ADD COLUMN trace_context text COLLATE "C",  -- of whoever asked for it
  ADD COLUMN last_trace_context text COLLATE "C";  -- of its end, or redrive

ALTER TABLE notifyqueue.webhook_events ADD COLUMN trace_context text COLLATE "C";

-- As it was, and with the span of the end.
CREATE OR REPLACE FUNCTION notifyqueue.write_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- Asked first, so that a claim or a renewal, which ends nothing, does not touch the table of events at all.
  IF EXISTS (SELECT FROM after_rows AS n WHERE n.status NOT IN ('PENDING', 'PROCESSING')) THEN
    INSERT INTO notifyqueue.webhook_events (
      tenant_id, notification_id, status, redrive_count, attempt_count, channel, failure_reason, reference, labels,
      occurred_at, trace_context
    )
    SELECT n.tenant_id, n.id, n.status, n.redrive_count, n.attempt_count, n.channel, n.failure_reason, n.reference,
      n.labels, n.finished_at, coalesce(n.last_trace_context, n.trace_context)
    FROM after_rows AS n
    WHERE n.status NOT IN ('PENDING', 'PROCESSING')
      -- Not a join: its plan is kept from a small group and would be quadratic in a large one. This one is hashed.
      AND n.id NOT IN (SELECT o.id FROM before_rows AS o WHERE o.status NOT IN ('PENDING', 'PROCESSING'));
  END IF;
  RETURN NULL;
END $$;
