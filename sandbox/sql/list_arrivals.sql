-- list_arrivals: what arrived, newest first: of one kind, with $2 (in lower case) in it, or all; of what arrived before
-- $3, or then with a ref below $4. One more than a page, which shows whether there is more. What was refused did not
-- arrive, and is there only where it is the kind that is asked for.
SELECT ref, kind, address, title, preview, key, times, verified, received_at
FROM (
  (
    SELECT 'mail-' || id AS ref, 'mail' AS kind, address, subject AS title,
      left(coalesce(text, ''), 200) AS preview, delivery_key AS key, 1 AS times, NULL::bool AS verified, received_at
    FROM sandbox.mails
    WHERE ($1::text IS NULL OR $1 = 'mail') AND ($2::text IS NULL OR position($2 IN findable) > 0)
      AND received_at <= coalesce($3::timestamptz, 'infinity')
      AND ($4::text IS NULL OR received_at < $3 OR 'mail-' || id < $4)
    ORDER BY received_at DESC, ref DESC LIMIT 51
  )
  UNION ALL
  (
    SELECT 'message-' || id AS ref, 'sms' AS kind, address, '' AS title,
      coalesce(content ->> 'text', '') AS preview, taken_as AS key, deliveries AS times, NULL AS verified, received_at
    FROM sandbox.messages
    WHERE server = 'twilio' AND ($1 IS NULL OR $1 = 'sms') AND ($2::text IS NULL OR position($2 IN findable) > 0)
      AND received_at <= coalesce($3::timestamptz, 'infinity')
      AND ($4::text IS NULL OR received_at < $3 OR 'message-' || id < $4)
    ORDER BY received_at DESC, ref DESC LIMIT 51
  )
  UNION ALL
  (
    SELECT 'message-' || id AS ref, 'push' AS kind, address, coalesce(content ->> 'title', '') AS title,
      coalesce(content ->> 'body', '') AS preview, coalesce(replaces, taken_as) AS key, deliveries AS times,
      NULL AS verified, received_at
    FROM sandbox.messages
    WHERE server = 'fcm' AND ($1 IS NULL OR $1 = 'push') AND ($2::text IS NULL OR position($2 IN findable) > 0)
      AND received_at <= coalesce($3::timestamptz, 'infinity')
      AND ($4::text IS NULL OR received_at < $3 OR 'message-' || id < $4)
    ORDER BY received_at DESC, ref DESC LIMIT 51
  )
  UNION ALL
  (
    SELECT 'mock-' || delivery_key AS ref, kind, address,
      coalesce(content ->> 'subject', content ->> 'title', '') AS title,
      left(coalesce(content ->> 'text', content ->> 'body', ''), 200) AS preview, delivery_key::text AS key,
      deliveries AS times, NULL AS verified, received_at
    FROM sandbox.mock_deliveries
    WHERE ($1 IS NULL OR kind = $1) AND ($2::text IS NULL OR position($2 IN findable) > 0)
      AND received_at <= coalesce($3::timestamptz, 'infinity')
      AND ($4::text IS NULL OR received_at < $3 OR 'mock-' || delivery_key < $4)
    ORDER BY received_at DESC, ref DESC LIMIT 51
  )
  UNION ALL
  (
    SELECT 'webhook-' || id AS ref, 'webhook' AS kind, name AS address, '' AS title,
      left(body, 20000) AS preview, webhook_id AS key, cardinality(answers) AS times, verified AS verified, received_at
    FROM sandbox.webhooks
    WHERE ($1 IS NULL OR $1 = 'webhook') AND ($2::text IS NULL OR position($2 IN findable) > 0)
      AND received_at <= coalesce($3::timestamptz, 'infinity')
      AND ($4::text IS NULL OR received_at < $3 OR 'webhook-' || id < $4)
    ORDER BY received_at DESC, ref DESC LIMIT 51
  )
  UNION ALL
  (
    SELECT 'request-' || id AS ref, 'refused' AS kind, address, action AS title, 'by ' || server AS preview,
      coalesce(delivery_key, '') AS key, 1 AS times, NULL AS verified, received_at
    FROM sandbox.requests
    WHERE action NOT LIKE 'accept%' AND $1 = 'refused'
      AND ($2::text IS NULL OR position($2 IN sandbox.lowered(concat_ws(' ', address, delivery_key, action, server))) > 0)
      AND received_at <= coalesce($3::timestamptz, 'infinity')
      AND ($4::text IS NULL OR received_at < $3 OR 'request-' || id < $4)
    ORDER BY received_at DESC, ref DESC LIMIT 51
  )
) found
ORDER BY received_at DESC, ref DESC LIMIT 51
