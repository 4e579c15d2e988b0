-- list_mock_deliveries: the newest ones, oldest first; to one address, of one delivery key, with $3 in the address or in
-- what was sent, or all.
SELECT delivery_key, channel, address, content, deliveries, received_at
FROM (
  SELECT * FROM sandbox.mock_deliveries
  WHERE ($1::text IS NULL OR address = $1) AND ($2::uuid IS NULL OR delivery_key = $2)
    AND ($3::text IS NULL OR position($3 IN address) > 0 OR position($3 IN content::text) > 0)
  ORDER BY received_at DESC LIMIT 1000
) newest
ORDER BY received_at
