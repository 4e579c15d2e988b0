-- take_mark: how far a sweep of retention has looked, held until the transaction ends; none where another worker holds
-- it. What it finds from there is to be read in a later statement: this one's snapshot is older than its lock.
--   $1 text  sweep
SELECT m.mark
FROM notifyqueue.retention_marks AS m
WHERE m.sweep = $1
FOR UPDATE SKIP LOCKED
