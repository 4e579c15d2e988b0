-- Who may call. A key is shown once, when it is made: what is stored here cannot be turned back into it.

CREATE TABLE notifyqueue.api_keys (
  id text COLLATE "C" PRIMARY KEY CHECK (id ~ '^[0-9a-f]{12}$'),
  tenant_id text COLLATE "C" REFERENCES notifyqueue.tenants (id),
  role text COLLATE "C" NOT NULL CHECK (role IN ('SENDER', 'OPERATOR', 'ADMIN', 'PLATFORM')),
  secret_hash bytea NOT NULL CHECK (octet_length(secret_hash) = 32),  -- SHA-256 of 32 random bytes in hex
  name text NOT NULL DEFAULT '' CHECK (length(name) <= 255),
  created_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz CHECK (isfinite(expires_at)),  -- null: never
  revoked_at timestamptz,  -- it stays after that: histories name it
  CONSTRAINT platform_has_no_tenant CHECK ((tenant_id IS NULL) = (role = 'PLATFORM'))
);
