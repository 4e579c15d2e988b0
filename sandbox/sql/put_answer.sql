-- put_answer: what was answered under an idempotency key, which is forgotten after a day.
INSERT INTO sandbox.answers (server, key, fingerprint, answer) VALUES ($1, $2, $3, $4)
ON CONFLICT (server, key) DO UPDATE
SET fingerprint = excluded.fingerprint, answer = excluded.answer, answered_at = clock_timestamp()
