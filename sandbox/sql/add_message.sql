-- add_message: keeps a message, or counts it again where it replaces the one that has its key.
INSERT INTO sandbox.messages (server, address, taken_as, replaces, content) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (server, address, replaces) DO UPDATE
SET deliveries = sandbox.messages.deliveries + 1, taken_as = excluded.taken_as
