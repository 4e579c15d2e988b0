-- Where a tenant's telephone numbers are when they do not say: an ISO 3166 code, as `GB`. Null: they have to say.
ALTER TABLE notifyqueue.tenants ADD COLUMN region text COLLATE "C" CHECK (region ~ '^[A-Z]{2}$');
