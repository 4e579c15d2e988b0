-- Whom nothing is sent to, and how much a tenant may bring in.

-- How an address is spelled where it is suppressed: no spelling of a mail address gets past an opt-out. Elsewhere its
-- local part keeps its case, which may matter to its host. Letters of ASCII only, whatever the database's locale.
CREATE FUNCTION notifyqueue.suppressed_form(channel text, address text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN channel = 'EMAIL' THEN lower(address COLLATE "C") ELSE address END
$$;

-- Any row that matches blocks. Each source has its own, so that forgetting what bounced forgets no opt-out.
CREATE TABLE notifyqueue.suppressions (
  id uuid PRIMARY KEY DEFAULT notifyqueue.new_id(),
  tenant_id text COLLATE "C" NOT NULL REFERENCES notifyqueue.tenants (id),
  channel text COLLATE "C" NOT NULL CHECK (channel IN ('EMAIL', 'SMS', 'PUSH')),
  address text COLLATE "C" NOT NULL CHECK (address <> ''),
  category text COLLATE "C" NOT NULL DEFAULT '' CHECK (length(category) <= 64),  -- '': all of them
  source text COLLATE "C" NOT NULL CHECK (source IN ('OPTED_OUT', 'BOUNCED', 'COMPLAINED', 'OPERATOR')),
  code text COLLATE "C" CHECK (code ~ '^[A-Za-z0-9._:-]{1,64}$'),  -- the provider's, where it was one that said so
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT an_address_has_one_spelling CHECK (address = notifyqueue.suppressed_form(channel, address)),
  CONSTRAINT one_suppression_per_source UNIQUE (tenant_id, address, channel, category, source)  -- look_up_keys, claim_due
);

-- How many requests a second a tenant may bring in, over time, and how many at once. Null: as many as it likes.
ALTER TABLE notifyqueue.tenants
  ADD COLUMN accept_rate numeric(9, 3) CHECK (accept_rate > 0),
  ADD COLUMN accept_burst int CHECK (accept_burst BETWEEN 1 AND 1000000),
  ADD CONSTRAINT accept_limit_is_whole CHECK (num_nonnulls(accept_rate, accept_burst) IN (0, 2));

-- What a tenant with a limit has used of it (services/scheduler/limits.py). Whoever writes its notifications holds its
-- row, and takes several in ascending order.
CREATE TABLE notifyqueue.accept_buckets (
  tenant_id text COLLATE "C" PRIMARY KEY REFERENCES notifyqueue.tenants (id),
  empty_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 100);
