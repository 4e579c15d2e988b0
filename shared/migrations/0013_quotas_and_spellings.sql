-- How many a tenant may have of what stays. Null: as many as the installation lets everybody have; pending notifications
-- it lets them have without end.
ALTER TABLE notifyqueue.tenants
  ADD COLUMN pending_quota int CHECK (pending_quota BETWEEN 1 AND 1000000),
  ADD COLUMN template_quota int CHECK (template_quota BETWEEN 1 AND 1000000),
  ADD COLUMN endpoint_quota int CHECK (endpoint_quota BETWEEN 1 AND 100);

-- Of a tenant with a quota how many were PENDING when they were last counted, and what has gone in since. Where that
-- leaves no room they are counted again, by whoever holds the row. Null: never, since the quota was set.
ALTER TABLE notifyqueue.accept_buckets
  ADD COLUMN pending bigint NOT NULL DEFAULT 0 CHECK (pending >= 0),
  ADD COLUMN counted_at timestamptz;

-- count_pending. What is PENDING has no end: that is said so that no other statement takes this index for its own, which
-- would sort what it finds.
CREATE INDEX notifications_pending ON notifyqueue.notifications (tenant_id)
  WHERE status = 'PENDING' AND finished_at IS NULL;

-- A list by an address has all its spellings, as suppressions and recipients' limits have. What stands in the rows is what
-- was written.
DROP INDEX notifyqueue.notifications_by_address;
CREATE INDEX notifications_by_address ON notifyqueue.notifications  -- list by address
  (tenant_id, notifyqueue.suppressed_form(channel, address), id);
