-- People whom a tenant has named, who is not sent to by that name, and what is erased with them.

CREATE TABLE notifyqueue.subscribers (
  id uuid PRIMARY KEY DEFAULT notifyqueue.new_id(),
  tenant_id text COLLATE "C" NOT NULL REFERENCES notifyqueue.tenants (id),
  name text COLLATE "C" NOT NULL CHECK (length(name) BETWEEN 1 AND 255),  -- the caller's id
  email text COLLATE "C" CHECK (email <> ''),
  phone text COLLATE "C" CHECK (phone ~ '^\+[0-9]'),
  push text COLLATE "C" CHECK (push <> ''),
  locale text COLLATE "C" CHECK (locale <> ''),
  time_zone text COLLATE "C" CHECK (time_zone <> ''),
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT one_subscriber_per_name UNIQUE (tenant_id, name)  -- look_up_keys, read_subscriber
);
CREATE INDEX subscribers_newest ON notifyqueue.subscribers (tenant_id, id);  -- list_subscribers, by address below
CREATE INDEX subscribers_by_email ON notifyqueue.subscribers (tenant_id, lower(email), id) WHERE email IS NOT NULL;
CREATE INDEX subscribers_by_phone ON notifyqueue.subscribers (tenant_id, phone, id) WHERE phone IS NOT NULL;
CREATE INDEX subscribers_by_push ON notifyqueue.subscribers (tenant_id, push, id) WHERE push IS NOT NULL;

-- Whom it was addressed to, if by name; and what stands for its address where that was erased (shared/pseudonym.py).
ALTER TABLE notifyqueue.notifications
  ADD COLUMN subscriber text COLLATE "C" CHECK (subscriber <> ''),
  ADD COLUMN pseudonym text COLLATE "C" CHECK (pseudonym <> ''),
  ALTER COLUMN address DROP NOT NULL,
  ADD CONSTRAINT who_is_erased_has_no_name CHECK (address IS NOT NULL OR subscriber IS NULL);
CREATE INDEX notifications_by_subscriber ON notifyqueue.notifications (tenant_id, subscriber, id)  -- list by subscriber
  WHERE subscriber IS NOT NULL;

-- Of an address, or of a subscriber, on one channel or, '', on all. Whose address was erased has its pseudonym instead.
ALTER TABLE notifyqueue.suppressions
  ADD COLUMN subscriber text COLLATE "C" CHECK (subscriber <> ''),
  ADD COLUMN erased boolean NOT NULL DEFAULT false,
  ALTER COLUMN address DROP NOT NULL,
  DROP CONSTRAINT suppressions_channel_check,
  ADD CONSTRAINT all_channels_only_of_a_subscriber CHECK (
    channel IN ('EMAIL', 'SMS', 'PUSH') OR channel = '' AND subscriber IS NOT NULL
  ),
  ADD CONSTRAINT of_an_address_or_a_subscriber CHECK (num_nonnulls(address, subscriber) = 1),
  ADD CONSTRAINT only_an_address_is_erased CHECK (NOT erased OR address IS NOT NULL);
CREATE UNIQUE INDEX one_suppression_of_a_subscriber_per_source  -- look_up_keys, claim_due
  ON notifyqueue.suppressions (tenant_id, subscriber, channel, category, source) WHERE subscriber IS NOT NULL;

-- The limit keys whose slots are one recipient's: an address has its own, a subscriber one for each channel, at which
-- those of that channel wait. All that is decided about them is decided under one lock.
CREATE FUNCTION notifyqueue.slot_keys(limit_key text) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN limit_key ~ '^(EMAIL|SMS|PUSH) subscriber ' THEN ARRAY[
    'EMAIL' || substr(limit_key, strpos(limit_key, ' ')), 'PUSH' || substr(limit_key, strpos(limit_key, ' ')),
    'SMS' || substr(limit_key, strpos(limit_key, ' '))
  ] ELSE ARRAY[limit_key] END
$$;
