-- find_scan_end: the last id that list_notifications looked at, if there may be more below it.
--   $1 text  tenant   $2 uuid  ids below   $3 uuid  ids from   $4 text  address or reference, where it leads
SELECT n.id
FROM notifyqueue.notifications AS n
WHERE n.tenant_id = $1 AND n.id < $2 AND n.id >= $3
  -- leading condition
ORDER BY n.id DESC
LIMIT 1
OFFSET 9999
