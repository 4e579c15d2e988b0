-- add_request: notes that a request arrived, and what is done with it.
INSERT INTO sandbox.requests (server, address, delivery_key, attempt, action) VALUES ($1, $2, $3, $4, $5)
