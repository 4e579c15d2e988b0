-- One notification's way: accepted, claimed, delivered, reported.

-- Ids carry the database's time, so that the newest page is a range of the primary key. uuidv7() is PostgreSQL 18's;
-- on 15 to 17 this builds the same form: 48 bits of milliseconds, 12 of their fraction, 62 random ones (RFC 9562, 6.2).
DO $$
BEGIN
  IF current_setting('server_version_num')::int >= 180000 THEN
    CREATE FUNCTION notifyqueue.new_id() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS 'SELECT uuidv7()';
  ELSE
    CREATE FUNCTION notifyqueue.new_id() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $body$
      SELECT (
        lpad(to_hex(now_us / 1000), 12, '0')
        || '7' || lpad(to_hex(now_us % 1000 * 4096 / 1000), 3, '0')
        || right(replace(gen_random_uuid()::text, '-', ''), 16)  -- begins with the variant
      )::uuid
      FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us) AS clock
    $body$;
  END IF;
END $$;

CREATE TABLE notifyqueue.tenants (
  id text COLLATE "C" PRIMARY KEY CHECK (id ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
  horizon interval NOT NULL DEFAULT '365 days' CHECK (horizon > '0'),
  past_grace interval NOT NULL DEFAULT '24 hours' CHECK (past_grace >= '0'),
  created_at timestamptz NOT NULL DEFAULT now()
);

INSERT INTO notifyqueue.tenants (id) VALUES ('default');

CREATE TABLE notifyqueue.notifications (
  id uuid PRIMARY KEY DEFAULT notifyqueue.new_id(),
  tenant_id text COLLATE "C" NOT NULL REFERENCES notifyqueue.tenants (id),
  idempotency_key text COLLATE "C" NOT NULL CHECK (length(idempotency_key) BETWEEN 1 AND 255),
  fingerprint bytea NOT NULL,
  channel text COLLATE "C" NOT NULL CHECK (channel IN ('EMAIL', 'SMS', 'PUSH')),
  address text COLLATE "C" NOT NULL CHECK (address <> ''),
  priority smallint NOT NULL CHECK (priority BETWEEN 1 AND 3),
  category text COLLATE "C" NOT NULL DEFAULT '',
  reference text COLLATE "C" CHECK (reference <> ''),
  labels jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(labels) = 'object'),
  at_most_once boolean NOT NULL DEFAULT false,

  status text COLLATE "C" NOT NULL DEFAULT 'PENDING' CHECK (
    status IN ('PENDING', 'PROCESSING', 'SENT', 'FAILED', 'DEAD_LETTERED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED')
  ),
  waiting boolean NOT NULL DEFAULT false,
  due_at timestamptz NOT NULL,
  next_attempt_at timestamptz NOT NULL,
  expire_at timestamptz,
  attempt_count smallint NOT NULL DEFAULT 0,
  max_attempts smallint NOT NULL CHECK (max_attempts BETWEEN 1 AND 101),  -- 100, and one to reconcile
  reconciliation_granted boolean NOT NULL DEFAULT false,
  expiries smallint NOT NULL DEFAULT 0 CHECK (expiries >= 0),
  maybe_delivered boolean NOT NULL DEFAULT false,

  claim_token uuid,
  worker_id uuid,
  lease_expires_at timestamptz,
  started_at timestamptz,

  failure_reason text COLLATE "C" CHECK (
    failure_reason IN (
      'MESSAGE_REJECTED', 'ADDRESS_REJECTED', 'ATTEMPTS_EXHAUSTED', 'OUTCOME_UNKNOWN', 'WORKER_LOST', 'OPTED_OUT',
      'ADDRESS_SUPPRESSED', 'CONTENT_ERASED'
    )
  ),
  provider_code text COLLATE "C" CHECK (provider_code ~ '^[A-Za-z0-9._:-]{1,64}$'),
  provider_message_id text COLLATE "C" CHECK (length(provider_message_id) BETWEEN 1 AND 255),
  redrive_count smallint NOT NULL DEFAULT 0,
  last_redriven_at timestamptz,
  revision bigint NOT NULL DEFAULT 1,
  created_at timestamptz NOT NULL DEFAULT now(),
  finished_at timestamptz,

  CONSTRAINT notifications_idempotency_key UNIQUE (tenant_id, idempotency_key),
  CONSTRAINT attempts_within_cap CHECK (attempt_count BETWEEN 0 AND max_attempts),
  CONSTRAINT pending_has_an_attempt_left CHECK (status <> 'PENDING' OR attempt_count < max_attempts),
  CONSTRAINT claim_exactly_when_processing CHECK (
    CASE WHEN status = 'PROCESSING'
      THEN num_nonnulls(claim_token, worker_id, lease_expires_at) = 3
      ELSE num_nonnulls(claim_token, worker_id, lease_expires_at) = 0
    END
  ),
  CONSTRAINT waiting_only_while_pending CHECK (NOT waiting OR status = 'PENDING'),
  CONSTRAINT finished_exactly_when_terminal CHECK (
    (finished_at IS NULL) = (status IN ('PENDING', 'PROCESSING'))
  ),
  CONSTRAINT failure_has_its_reason CHECK (
    CASE status
      WHEN 'FAILED' THEN failure_reason IN ('MESSAGE_REJECTED', 'ADDRESS_REJECTED', 'OUTCOME_UNKNOWN', 'CONTENT_ERASED')
      WHEN 'DEAD_LETTERED' THEN failure_reason IN ('ATTEMPTS_EXHAUSTED', 'WORKER_LOST')
      WHEN 'SUPPRESSED' THEN failure_reason IN ('OPTED_OUT', 'ADDRESS_SUPPRESSED')
      ELSE failure_reason IS NULL
    END IS TRUE
  ),
  CONSTRAINT redrives_have_their_time CHECK ((redrive_count > 0) = (last_redriven_at IS NOT NULL)),
  CONSTRAINT expires_after_due CHECK (expire_at > due_at)
) WITH (
  fillfactor = 80,
  -- Every notification is written at least three times: vacuum after a part of what is hot, not a part of all.
  autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.02
);

-- Each index serves the query named beside it, and is paid for by every notification.
CREATE INDEX notifications_claim ON notifyqueue.notifications (channel, priority, next_attempt_at, id)  -- claim
  WHERE status = 'PENDING' AND NOT waiting AND expiries < 2;
CREATE INDEX notifications_suspects ON notifyqueue.notifications (channel, next_attempt_at, id)  -- claim, suspects
  WHERE status = 'PENDING' AND NOT waiting AND expiries >= 2;
CREATE INDEX notifications_leases ON notifyqueue.notifications (lease_expires_at) WHERE status = 'PROCESSING';  -- recovery
CREATE INDEX notifications_expiry ON notifyqueue.notifications (expire_at)  -- expiry sweep
  WHERE status = 'PENDING' AND expire_at IS NOT NULL;
CREATE INDEX notifications_newest ON notifyqueue.notifications (tenant_id, id);  -- list
CREATE INDEX notifications_by_rare_status ON notifyqueue.notifications (tenant_id, status, id)  -- list by status
  WHERE status IN ('FAILED', 'DEAD_LETTERED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED');
CREATE INDEX notifications_by_address ON notifyqueue.notifications (tenant_id, address, id);  -- list by address
CREATE INDEX notifications_by_reference ON notifyqueue.notifications (tenant_id, reference, id)  -- list by reference
  WHERE reference IS NOT NULL;

-- What is said. Apart, so that a notification can change without carrying it along, and nobody who only reports can read it.
CREATE TABLE notifyqueue.notification_contents (
  notification_id uuid PRIMARY KEY,
  content jsonb NOT NULL CHECK (jsonb_typeof(content) = 'object')
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);

-- What happened that is rare. Append-only; acceptance and the end stand in the notification itself.
CREATE TABLE notifyqueue.notification_history (
  notification_id uuid NOT NULL,
  id bigint GENERATED ALWAYS AS IDENTITY,
  happened_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  kind text COLLATE "C" NOT NULL CHECK (
    kind IN ('ATTEMPT_FAILED', 'ATTEMPT_UNKNOWN', 'WAITED', 'REDRIVEN', 'RESCHEDULED', 'CANCELLED')
  ),
  attempt smallint NOT NULL DEFAULT 0 CHECK (attempt >= 0),
  claim_token uuid,
  worker_id uuid,
  provider_code text COLLATE "C" CHECK (provider_code ~ '^[A-Za-z0-9._:-]{1,64}$'),
  retry_delay interval,
  actor text COLLATE "C" NOT NULL DEFAULT '',
  note text NOT NULL DEFAULT '' CHECK (length(note) <= 255),
  PRIMARY KEY (notification_id, id),
  CONSTRAINT one_outcome_per_claim UNIQUE (notification_id, claim_token),
  CONSTRAINT attempts_have_their_claim CHECK (
    kind NOT IN ('ATTEMPT_FAILED', 'ATTEMPT_UNKNOWN') OR num_nonnulls(claim_token, worker_id) = 2
  )
);

-- An endpoint's row is the lock of its deliveries: whoever writes them holds it, and takes several in ascending order.
CREATE TABLE notifyqueue.webhook_endpoints (
  id uuid PRIMARY KEY DEFAULT notifyqueue.new_id(),
  tenant_id text COLLATE "C" NOT NULL REFERENCES notifyqueue.tenants (id),
  url text COLLATE "C" NOT NULL CHECK (length(url) BETWEEN 1 AND 2048),
  event_types text[] COLLATE "C" NOT NULL DEFAULT '{}',
  description text NOT NULL DEFAULT '' CHECK (length(description) <= 255),
  sealed_secret bytea NOT NULL,
  configured boolean NOT NULL DEFAULT false,  -- named by a setting, not by a call
  enabled boolean NOT NULL DEFAULT true,
  disabled_reason text COLLATE "C" CHECK (disabled_reason IN ('GONE', 'DELETED')),
  paused_until timestamptz NOT NULL DEFAULT '-infinity',
  next_due_at timestamptz NOT NULL DEFAULT 'infinity',  -- too early costs a look, too late never happens
  created_at timestamptz NOT NULL DEFAULT now(),
  deleted_at timestamptz,
  CONSTRAINT disabled_has_its_reason CHECK (enabled = (disabled_reason IS NULL)),
  CONSTRAINT deleted_is_disabled CHECK (deleted_at IS NULL OR NOT enabled)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 100);

CREATE INDEX webhook_endpoints_newest ON notifyqueue.webhook_endpoints (tenant_id, id) WHERE deleted_at IS NULL;
CREATE INDEX webhook_endpoints_due ON notifyqueue.webhook_endpoints (next_due_at);  -- take_endpoints, give_up_deleted
CREATE UNIQUE INDEX one_configured_endpoint ON notifyqueue.webhook_endpoints (tenant_id)
  WHERE configured AND deleted_at IS NULL;

-- One per terminal status that was entered, with every fact of the webhook, so that a dispatcher reads nothing else.
CREATE TABLE notifyqueue.webhook_events (
  id uuid PRIMARY KEY DEFAULT notifyqueue.new_id(),
  tenant_id text COLLATE "C" NOT NULL,
  notification_id uuid NOT NULL,
  status text COLLATE "C" NOT NULL CHECK (
    status IN ('SENT', 'FAILED', 'DEAD_LETTERED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED')
  ),
  redrive_count smallint NOT NULL,
  attempt_count smallint NOT NULL,
  channel text COLLATE "C" NOT NULL,
  failure_reason text COLLATE "C",
  reference text COLLATE "C",
  labels jsonb NOT NULL,
  occurred_at timestamptz NOT NULL,
  fanned_out_at timestamptz,
  body bytea,  -- what is signed and posted, written once; none where no endpoint wanted it
  CONSTRAINT one_event_per_end UNIQUE (notification_id, status, redrive_count),
  CONSTRAINT fan_out_writes_the_body CHECK (body IS NULL OR fanned_out_at IS NOT NULL)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);

CREATE INDEX webhook_events_fan_out ON notifyqueue.webhook_events (id) WHERE fanned_out_at IS NULL;  -- fan_out_events

CREATE TABLE notifyqueue.webhook_deliveries (
  id uuid PRIMARY KEY DEFAULT notifyqueue.new_id(),
  event_id uuid NOT NULL,
  endpoint_id uuid NOT NULL,
  tenant_id text COLLATE "C" NOT NULL,
  attempt_count smallint NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
  next_attempt_at timestamptz NOT NULL DEFAULT now(),
  claim_token uuid,
  delivered_at timestamptz,
  given_up_at timestamptz,
  give_up_reason text COLLATE "C" CHECK (give_up_reason IN ('EXHAUSTED', 'GONE', 'ENDPOINT_DELETED')),
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT one_delivery_per_endpoint UNIQUE (event_id, endpoint_id),
  CONSTRAINT one_end CHECK (num_nonnulls(delivered_at, given_up_at) <= 1),
  CONSTRAINT an_end_holds_no_claim CHECK (num_nonnulls(delivered_at, given_up_at) = 0 OR claim_token IS NULL),
  CONSTRAINT giving_up_has_its_reason CHECK ((given_up_at IS NULL) = (give_up_reason IS NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- next_attempt_at is when there is something to do: the attempt, or the end of the lease of the dispatcher that makes it.
-- So what a crashed dispatcher held becomes due by itself.
CREATE INDEX webhook_deliveries_due ON notifyqueue.webhook_deliveries (endpoint_id, next_attempt_at, id)  -- claim_deliveries
  WHERE delivered_at IS NULL AND given_up_at IS NULL;
CREATE INDEX webhook_deliveries_leased ON notifyqueue.webhook_deliveries (endpoint_id, next_attempt_at)  -- caps
  WHERE claim_token IS NOT NULL;

CREATE INDEX webhook_deliveries_given_up ON notifyqueue.webhook_deliveries (tenant_id)  -- read_webhook_stats
  WHERE given_up_at IS NOT NULL;

CREATE TABLE notifyqueue.webhook_attempts (
  delivery_id uuid NOT NULL,
  attempt smallint NOT NULL CHECK (attempt > 0),
  started_at timestamptz NOT NULL,
  duration interval NOT NULL,
  http_status smallint,
  error_class text COLLATE "C" CHECK (
    error_class IN (
      'STATUS', 'TIMEOUT', 'CONNECTION', 'PROTOCOL', 'DNS', 'TLS', 'ADDRESS_BLOCKED', 'ENDPOINT_INVALID', 'LEASE_LOST'
    )
  ),
  PRIMARY KEY (delivery_id, attempt),
  CONSTRAINT an_error_unless_2xx CHECK ((error_class IS NULL) = (coalesce(http_status, 0) BETWEEN 200 AND 299))
);

-- An event exists exactly when a terminal status was entered, whatever statement did it.
CREATE FUNCTION notifyqueue.write_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- Asked first, so that a claim or a renewal, which ends nothing, does not touch the table of events at all.
  IF EXISTS (SELECT FROM after_rows AS n WHERE n.status NOT IN ('PENDING', 'PROCESSING')) THEN
    INSERT INTO notifyqueue.webhook_events (
      tenant_id, notification_id, status, redrive_count, attempt_count, channel, failure_reason, reference, labels,
      occurred_at
    )
    SELECT n.tenant_id, n.id, n.status, n.redrive_count, n.attempt_count, n.channel, n.failure_reason, n.reference,
      n.labels, n.finished_at
    FROM after_rows AS n
    WHERE n.status NOT IN ('PENDING', 'PROCESSING')
      -- Not a join: its plan is kept from a small group and would be quadratic in a large one. This one is hashed.
      AND n.id NOT IN (SELECT o.id FROM before_rows AS o WHERE o.status NOT IN ('PENDING', 'PROCESSING'));
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER write_events AFTER UPDATE ON notifyqueue.notifications
  REFERENCING OLD TABLE AS before_rows NEW TABLE AS after_rows
  FOR EACH STATEMENT EXECUTE FUNCTION notifyqueue.write_events();
