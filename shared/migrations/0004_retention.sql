-- How far retention has looked, and the tables it empties.

-- Ids carry their time: what was made before a time has an id below this one.
CREATE FUNCTION notifyqueue.first_id(at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT rpad(lpad(to_hex(greatest(floor(extract(epoch FROM at) * 1000), 0)::bigint), 12, '0'), 32, '0')::uuid
$$;

-- A sweep walks webhook_events, which are the ends in their order. Whoever holds its row walks; the others go away.
CREATE TABLE notifyqueue.retention_marks (
  sweep text COLLATE "C" PRIMARY KEY CHECK (sweep IN ('EXPIRING_CONTENTS', 'CONTENTS', 'NOTIFICATIONS')),
  mark uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',  -- of the last event that it has looked at
  begun_at timestamptz NOT NULL DEFAULT now()  -- when it last began with the first event of all
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 100);

INSERT INTO notifyqueue.retention_marks (sweep) VALUES ('EXPIRING_CONTENTS'), ('CONTENTS'), ('NOTIFICATIONS');

-- Rows leave these from now on: vacuum after a part of what leaves in a day, not a part of all.
ALTER TABLE notifyqueue.notification_contents SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
ALTER TABLE notifyqueue.notification_history SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
ALTER TABLE notifyqueue.webhook_attempts SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
