-- What the sandbox keeps, apart from the schema of the services, so that it can be looked at after any restart.
CREATE SCHEMA IF NOT EXISTS sandbox;

-- Every request for an address, whatever became of it; with a sender's, where it went no further.
CREATE TABLE IF NOT EXISTS sandbox.requests (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  server text NOT NULL,
  address text NOT NULL,
  delivery_key text,
  attempt int,
  action text NOT NULL,
  received_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX IF NOT EXISTS requests_address ON sandbox.requests (server, address, id);

-- How often a script has been played.
CREATE TABLE IF NOT EXISTS sandbox.plays (
  server text NOT NULL,
  subject text NOT NULL,
  played int NOT NULL,
  PRIMARY KEY (server, subject)
);

-- Every mail that was accepted: SMTP knows no duplicates, so a copy is a row.
CREATE TABLE IF NOT EXISTS sandbox.mails (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  delivery_key text,
  address text NOT NULL,
  sender text NOT NULL,
  subject text NOT NULL,
  text text,
  html text,
  raw bytea NOT NULL,
  received_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX IF NOT EXISTS mails_address ON sandbox.mails (address, id);
CREATE INDEX IF NOT EXISTS mails_delivery_key ON sandbox.mails (delivery_key);

-- The mock provider's ledger: it deduplicates, so a delivery key is a row.
CREATE TABLE IF NOT EXISTS sandbox.mock_deliveries (
  delivery_key uuid PRIMARY KEY,
  channel text NOT NULL,
  address text NOT NULL,
  content jsonb NOT NULL,
  deliveries int NOT NULL DEFAULT 1,
  received_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX IF NOT EXISTS mock_deliveries_address ON sandbox.mock_deliveries (address, received_at);

-- Every text message and push that was accepted. Where the other end shows one thing for all that has the same key, a
-- further copy is counted; where it does not, a copy is a row.
CREATE TABLE IF NOT EXISTS sandbox.messages (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  server text NOT NULL,
  address text NOT NULL,
  taken_as text NOT NULL,
  replaces text,
  content jsonb NOT NULL,
  deliveries int NOT NULL DEFAULT 1,
  received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE (server, address, replaces)
);

-- What was answered under an idempotency key.
CREATE TABLE IF NOT EXISTS sandbox.answers (
  server text NOT NULL,
  key text NOT NULL,
  fingerprint bytea NOT NULL,
  answer jsonb NOT NULL,
  answered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (server, key)
);

CREATE TABLE IF NOT EXISTS sandbox.webhook_secrets (
  name text PRIMARY KEY,
  secret text NOT NULL
);

-- One row per event and endpoint, with the status of every answer that it got; 0 is no answer.
CREATE TABLE IF NOT EXISTS sandbox.webhooks (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL,
  webhook_id text NOT NULL,
  body text NOT NULL,
  verified bool,
  answers int[] NOT NULL,
  received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE (name, webhook_id)
);

-- In lower case, also where the database's locale knows no letters but ASCII's. No collation that does is in every build.
DO $$
BEGIN
  EXECUTE format(
    'CREATE OR REPLACE FUNCTION sandbox.lowered(text) RETURNS text LANGUAGE sql IMMUTABLE AS %L',
    format('SELECT lower($1 COLLATE pg_catalog.%I)', (
      SELECT c.collname FROM pg_catalog.pg_collation c
      WHERE c.collname IN ('pg_c_utf8', 'C.utf8', 'und-x-icu', 'default')
        AND c.collencoding IN (-1, pg_char_to_encoding(getdatabaseencoding()))
      ORDER BY array_position(ARRAY['pg_c_utf8', 'C.utf8', 'und-x-icu', 'default'], c.collname::text) LIMIT 1
    ))
  );
END
$$;

-- What the inbox page finds things by, newest first; of what is very long, the beginning. Earlier it was `searchable`.
ALTER TABLE sandbox.mails DROP COLUMN IF EXISTS searchable;
ALTER TABLE sandbox.mails ADD COLUMN IF NOT EXISTS findable text GENERATED ALWAYS AS (sandbox.lowered(
  address || ' ' || subject || ' ' || coalesce(delivery_key, '') || ' ' || left(coalesce(text, html, ''), 10000)
)) STORED;
ALTER TABLE sandbox.mock_deliveries DROP COLUMN IF EXISTS searchable;
ALTER TABLE sandbox.mock_deliveries ADD COLUMN IF NOT EXISTS findable text GENERATED ALWAYS AS (sandbox.lowered(
  address || ' ' || delivery_key::text || ' ' || coalesce(content ->> 'subject', content ->> 'title', '') || ' '
  || left(coalesce(content ->> 'text', content ->> 'body', content ->> 'html', ''), 10000) || ' '
  || left(coalesce(content ->> 'data', ''), 10000)
)) STORED;
ALTER TABLE sandbox.mock_deliveries ADD COLUMN IF NOT EXISTS kind text GENERATED ALWAYS AS (
  CASE channel WHEN 'EMAIL' THEN 'mail' ELSE lower(channel) END
) STORED;
ALTER TABLE sandbox.messages DROP COLUMN IF EXISTS searchable;
ALTER TABLE sandbox.messages ADD COLUMN IF NOT EXISTS findable text GENERATED ALWAYS AS (sandbox.lowered(
  address || ' ' || taken_as || ' ' || coalesce(replaces, '') || ' ' || coalesce(content ->> 'title', '') || ' '
  || left(coalesce(content ->> 'text', content ->> 'body', ''), 10000) || ' '
  || left(coalesce(content ->> 'data', ''), 10000)
)) STORED;
ALTER TABLE sandbox.webhooks DROP COLUMN IF EXISTS searchable;
ALTER TABLE sandbox.webhooks ADD COLUMN IF NOT EXISTS findable text GENERATED ALWAYS AS (sandbox.lowered(
  name || ' ' || webhook_id || ' ' || left(body, 10000)
)) STORED;
CREATE INDEX IF NOT EXISTS requests_refused ON sandbox.requests (received_at) WHERE action NOT LIKE 'accept%';
CREATE INDEX IF NOT EXISTS mails_received ON sandbox.mails (received_at);
CREATE INDEX IF NOT EXISTS mock_deliveries_received ON sandbox.mock_deliveries (received_at);
CREATE INDEX IF NOT EXISTS mock_deliveries_kind ON sandbox.mock_deliveries (kind, received_at);
CREATE INDEX IF NOT EXISTS messages_received ON sandbox.messages (server, received_at);
CREATE INDEX IF NOT EXISTS webhooks_received ON sandbox.webhooks (received_at);
