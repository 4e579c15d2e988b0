-- ping: whether the database answers.
SELECT 1
