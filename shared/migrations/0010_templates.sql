-- What notifications say, kept with places for variables. Versions are written once; a name that is erased keeps its row,
-- so that no number of a version is used twice.
CREATE TABLE notifyqueue.templates (
  id uuid PRIMARY KEY DEFAULT notifyqueue.new_id(),
  tenant_id text COLLATE "C" NOT NULL REFERENCES notifyqueue.tenants (id),
  name text COLLATE "C" NOT NULL CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$'),
  channel text COLLATE "C" NOT NULL CHECK (channel IN ('EMAIL', 'SMS', 'PUSH')),
  newest int NOT NULL CHECK (newest >= 1),
  erased_at timestamptz,
  CONSTRAINT one_template_per_name UNIQUE (tenant_id, name)  -- look_up_keys, read_template
);
CREATE INDEX templates_newest ON notifyqueue.templates (tenant_id, id) WHERE erased_at IS NULL;  -- list_templates

CREATE TABLE notifyqueue.template_versions (
  template_id uuid NOT NULL REFERENCES notifyqueue.templates (id),
  version int NOT NULL CHECK (version >= 1),
  default_locale text COLLATE "C" NOT NULL CHECK (default_locale <> ''),
  variants jsonb NOT NULL,  -- by locale, the fields of the channel's content
  actor text COLLATE "C" NOT NULL DEFAULT '',
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (template_id, version),
  CONSTRAINT the_default_is_there CHECK ((jsonb_typeof(variants) = 'object' AND variants ? default_locale) IS TRUE)
);

-- What a notification was rendered from, while somebody listened.
ALTER TABLE notifyqueue.notifications
  ADD COLUMN template text COLLATE "C",
  ADD COLUMN template_version int,
  ADD CONSTRAINT template_has_its_version CHECK (num_nonnulls(template, template_version) IN (0, 2));
