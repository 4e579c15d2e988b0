-- find_writers: the transactions that are writing notifications just now, in this database. Each has locked the table
-- before it looks at any row, so whoever does not know of what we have committed is among them.
SELECT l.virtualtransaction
FROM pg_catalog.pg_locks AS l
JOIN pg_catalog.pg_database AS d ON d.oid = l.database AND d.datname = current_database()
WHERE l.relation = 'notifyqueue.notifications'::regclass AND l.mode = 'RowExclusiveLock' AND l.granted
