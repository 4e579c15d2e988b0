-- allow_writing: ends the read-only session, for a repair that was asked for.
SELECT set_config('default_transaction_read_only', 'off', false) AS read_only
