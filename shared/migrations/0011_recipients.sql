-- Whom nothing is sent to, as operators and providers say it.

ALTER TABLE notifyqueue.suppressions
  ADD COLUMN created_by text COLLATE "C" NOT NULL DEFAULT '';  -- the key that put it; '': a provider's answer
CREATE INDEX suppressions_newest ON notifyqueue.suppressions (tenant_id, id);  -- list_suppressions
CREATE INDEX suppressions_by_source ON notifyqueue.suppressions (tenant_id, source, id)  -- delete_suppressions, and
  INCLUDE (created_at);                                                                  -- list_suppressions

-- What is sent also to those who opted out, such as the reset of a password.
ALTER TABLE notifyqueue.tenants
  ADD COLUMN required_categories text[] COLLATE "C" NOT NULL DEFAULT '{}',
  ADD CONSTRAINT required_categories_are_named CHECK (
    cardinality(required_categories) <= 20
    AND array_position(required_categories, '') IS NULL AND array_position(required_categories, NULL) IS NULL
  );
