-- delete_subscriber: a subscriber, whom we hold, is gone.
--   $1 uuid  who
DELETE FROM notifyqueue.subscribers AS s
WHERE s.id = $1
