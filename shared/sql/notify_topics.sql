-- notify_topics: wakes whoever listens on these. Alone in its transaction: at commit it takes a lock of the database.
--   $1 text[]  topics
SELECT pg_catalog.pg_notify(asked.topic, '')
FROM unnest($1::text[]) AS asked (topic)
