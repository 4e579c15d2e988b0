-- What all workers know of a lane together, and which workers there are.

CREATE TABLE notifyqueue.lanes (
  channel text COLLATE "C" PRIMARY KEY CHECK (channel IN ('EMAIL', 'SMS', 'PUSH')),

  paused_at timestamptz,  -- by a person
  paused_by text COLLATE "C",
  pause_reason text CHECK (length(pause_reason) BETWEEN 1 AND 255),

  opening bigint NOT NULL DEFAULT 0,  -- how often the breaker has opened: what a probe's answer is about
  opened_at timestamptz,  -- null: the breaker is closed
  cause text COLLATE "C" CHECK (cause ~ '^[A-Za-z0-9._:-]{1,64}$'),
  probe_at timestamptz,  -- when the next probe may start; while one runs, when it is given up
  probe_delay interval,
  probe_token uuid,  -- of the probe that runs, or ran last

  held_until timestamptz NOT NULL DEFAULT '-infinity',  -- its provider asked for that
  CONSTRAINT pause_is_whole CHECK (num_nonnulls(paused_at, paused_by, pause_reason) IN (0, 3)),
  CONSTRAINT open_breaker_is_whole CHECK (num_nonnulls(opened_at, cause, probe_at, probe_delay) IN (0, 4)),
  CONSTRAINT only_an_open_breaker_is_probed CHECK (probe_token IS NULL OR opened_at IS NOT NULL)
) WITH (fillfactor = 50);

INSERT INTO notifyqueue.lanes (channel) VALUES ('EMAIL'), ('SMS'), ('PUSH');

-- Who did what to a lane, and what its breaker did. Append-only; part of the timeline of whatever waited meanwhile.
CREATE TABLE notifyqueue.lane_history (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  channel text COLLATE "C" NOT NULL,
  happened_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  kind text COLLATE "C" NOT NULL CHECK (kind IN ('LANE_PAUSED', 'LANE_RESUMED', 'BREAKER_OPENED', 'BREAKER_CLOSED')),
  actor text COLLATE "C" NOT NULL DEFAULT '',
  worker_id uuid,
  cause text COLLATE "C" CHECK (cause ~ '^[A-Za-z0-9._:-]{1,64}$'),
  note text NOT NULL DEFAULT '' CHECK (length(note) <= 255)
);

CREATE INDEX lane_history_by_time ON notifyqueue.lane_history (channel, happened_at);  -- read_history
CREATE INDEX lane_history_by_kind ON notifyqueue.lane_history (channel, kind, happened_at);  -- read_history, retention

-- A sign of life of every worker. Which of them is gone is judged by its age; what it held, by its leases.
CREATE TABLE notifyqueue.workers (
  id uuid PRIMARY KEY,
  phase text COLLATE "C" NOT NULL CHECK (phase IN ('RUNNING', 'DRAINING', 'DRAINED')),
  started_at timestamptz NOT NULL DEFAULT now(),
  heartbeat_at timestamptz NOT NULL DEFAULT now(),
  channels text[] COLLATE "C" NOT NULL,  -- these four have one element per lane that it serves
  concurrency int[] NOT NULL,
  in_flight int[] NOT NULL,
  sent bigint[] NOT NULL,
  unsent bigint[] NOT NULL,
  CONSTRAINT lanes_are_whole CHECK (
    cardinality(channels) = ALL (
      ARRAY[cardinality(concurrency), cardinality(in_flight), cardinality(sent), cardinality(unsent)]
    )
  )
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 100);
