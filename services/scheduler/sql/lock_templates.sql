-- lock_templates: whoever writes a tenant's templates is alone until the transaction ends. What it decides by has to be
-- read in a later statement: this one's snapshot is older than its lock.
--   $1 text  tenant
SELECT pg_advisory_xact_lock(hashtextextended('templates of ' || $1, 0))
