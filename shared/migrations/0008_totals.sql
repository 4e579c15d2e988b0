-- How many ended in which way, since ever: told by the events, kept when the notifications have gone.

-- One row per tenant, channel and status of each statement that ends notifications. Only ever inserted, so that nobody
-- waits for anybody on the way of a notification; merged into status_totals within seconds.
CREATE TABLE notifyqueue.status_deltas (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant_id text COLLATE "C" NOT NULL,
  channel text COLLATE "C" NOT NULL,
  status text COLLATE "C" NOT NULL,
  count bigint NOT NULL CHECK (count > 0)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE notifyqueue.status_totals (
  tenant_id text COLLATE "C" NOT NULL,
  channel text COLLATE "C" NOT NULL CHECK (channel IN ('EMAIL', 'SMS', 'PUSH')),
  status text COLLATE "C" NOT NULL CHECK (
    status IN ('SENT', 'FAILED', 'DEAD_LETTERED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED')
  ),
  count bigint NOT NULL CHECK (count > 0),
  PRIMARY KEY (tenant_id, channel, status)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 100);

-- Of events, because there is exactly one for each end: whatever writes them, the totals agree with them.
CREATE FUNCTION notifyqueue.count_ends() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO notifyqueue.status_deltas (tenant_id, channel, status, count)
  SELECT e.tenant_id, e.channel, e.status, count(*)
  FROM new_events AS e
  GROUP BY e.tenant_id, e.channel, e.status;
  RETURN NULL;
END $$;

CREATE TRIGGER count_ends AFTER INSERT ON notifyqueue.webhook_events
  REFERENCING NEW TABLE AS new_events
  FOR EACH STATEMENT EXECUTE FUNCTION notifyqueue.count_ends();

-- What had ended before, as far as it is still there. The trigger's lock keeps others from ending until this commits.
INSERT INTO notifyqueue.status_totals (tenant_id, channel, status, count)
SELECT n.tenant_id, n.channel, n.status, count(*)
FROM notifyqueue.notifications AS n
WHERE n.status IN ('SENT', 'FAILED', 'DEAD_LETTERED', 'CANCELLED', 'EXPIRED', 'SUPPRESSED')
GROUP BY n.tenant_id, n.channel, n.status;
