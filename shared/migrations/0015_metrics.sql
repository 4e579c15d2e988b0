-- Endpoints that have answered 410, which a metric counts every 15 seconds: without it that would read all of them.
CREATE INDEX webhook_endpoints_gone ON notifyqueue.webhook_endpoints (id)  -- read_gauges
  WHERE NOT enabled AND deleted_at IS NULL;
