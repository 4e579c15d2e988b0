-- list_requests: the newest ones, oldest first; of one server, one address, or all.
SELECT server, address, delivery_key, attempt, action, received_at
FROM (
  SELECT * FROM sandbox.requests
  WHERE ($1::text IS NULL OR server = $1) AND ($2::text IS NULL OR address = $2)
  ORDER BY id DESC LIMIT 1000
) newest
ORDER BY id
