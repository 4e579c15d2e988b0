-- get_mail: a mail, and how many there are under its delivery key.
SELECT id, delivery_key, address, sender, subject, text, html, raw, received_at,
  (SELECT count(*) FROM sandbox.mails AS copy WHERE copy.delivery_key = mail.delivery_key) AS copies
FROM sandbox.mails AS mail
WHERE id = $1
