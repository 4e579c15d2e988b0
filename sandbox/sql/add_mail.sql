-- add_mail: keeps a mail, whether or not a copy of it is there.
INSERT INTO sandbox.mails (delivery_key, address, sender, subject, text, html, raw)
VALUES ($1, $2, $3, $4, $5, $6, $7)
RETURNING id
