-- list_messages: the newest ones, oldest first; that one server took, to one address, with $3 in the address or in what
-- was sent, or all.
SELECT server, address, taken_as, replaces, content, deliveries, received_at
FROM (
  SELECT * FROM sandbox.messages
  WHERE ($1::text IS NULL OR server = $1) AND ($2::text IS NULL OR address = $2)
    AND ($3::text IS NULL OR position($3 IN address) > 0 OR position($3 IN content::text) > 0)
  ORDER BY id DESC LIMIT 1000
) newest
ORDER BY id
