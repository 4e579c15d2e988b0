-- list_mails: the newest ones, oldest first; to one address, of one delivery key, to addresses that contain $3, or all.
SELECT id, delivery_key, address, sender, subject, text, html, received_at
FROM (
  SELECT * FROM sandbox.mails
  WHERE ($1::text IS NULL OR address = $1) AND ($2::text IS NULL OR delivery_key = $2)
    AND ($3::text IS NULL OR position($3 IN address) > 0)
  ORDER BY id DESC LIMIT 1000
) newest
ORDER BY id
