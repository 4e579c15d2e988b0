-- get_request: a request that was noted, and what was done with it.
SELECT id, server, address, delivery_key, attempt, action, received_at FROM sandbox.requests WHERE id = $1
