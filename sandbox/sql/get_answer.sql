-- get_answer: no row where nothing was answered under this key within a day.
SELECT fingerprint, answer FROM sandbox.answers
WHERE server = $1 AND key = $2 AND answered_at > clock_timestamp() - interval '24 hours'
