-- A tenant's recipients get at most so many in any window; who may not start yet waits at the recipient's gate.

ALTER TABLE notifyqueue.tenants
  ADD COLUMN recipient_limit smallint CHECK (recipient_limit BETWEEN 1 AND 1000),  -- null: as many as come
  ADD COLUMN recipient_window interval CHECK (recipient_window > '0' AND recipient_window <= '31 days'),
  ADD CONSTRAINT recipient_limit_is_whole CHECK (num_nonnulls(recipient_limit, recipient_window) IN (0, 2));

-- Whose slots count: written when it goes to a gate, so that nobody else's row carries it.
ALTER TABLE notifyqueue.notifications
  ADD COLUMN limit_key text COLLATE "C",
  ADD COLUMN granted boolean NOT NULL DEFAULT false,  -- it was called from the gate: its slot is kept until it starts
  ADD CONSTRAINT granted_only_before_its_end CHECK (NOT granted OR status IN ('PENDING', 'PROCESSING') AND NOT waiting),
  ADD CONSTRAINT the_gate_is_known CHECK (limit_key IS NOT NULL OR NOT waiting AND NOT granted);

CREATE INDEX notifications_gate ON notifyqueue.notifications  -- grant_slots, and whether anybody waits
  (tenant_id, limit_key, priority DESC, next_attempt_at, id) WHERE waiting;
CREATE INDEX notifications_granted ON notifyqueue.notifications (tenant_id, limit_key) WHERE granted;  -- read_windows

-- The last start of a notification that counted against its recipient's limit. It stays for a window, whatever becomes
-- of the notification.
CREATE TABLE notifyqueue.recipient_reservations (
  notification_id uuid PRIMARY KEY,
  tenant_id text COLLATE "C" NOT NULL,
  limit_key text COLLATE "C" NOT NULL,
  started_at timestamptz NOT NULL,
  leaves_at timestamptz NOT NULL  -- when it has left the window, as long as that was then
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX recipient_reservations_window  -- read_windows
  ON notifyqueue.recipient_reservations (tenant_id, limit_key, started_at);
-- Not by tenant and start, which a plan that was made for an empty table would take for read_windows.
CREATE INDEX recipient_reservations_age ON notifyqueue.recipient_reservations (leaves_at);  -- remove_reservations

-- When to look again at a recipient for whom somebody waits. Written under the recipient's lock, with whoever waits.
CREATE TABLE notifyqueue.recipient_gates (
  tenant_id text COLLATE "C" NOT NULL,
  limit_key text COLLATE "C" NOT NULL,
  channel text COLLATE "C" NOT NULL CHECK (channel IN ('EMAIL', 'SMS', 'PUSH')),
  opens_at timestamptz NOT NULL,  -- too early costs a look, too late never happens
  PRIMARY KEY (tenant_id, limit_key)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);

CREATE INDEX recipient_gates_due ON notifyqueue.recipient_gates (channel, opens_at);  -- take_gates, read_next_gate
