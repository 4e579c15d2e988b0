-- forget_worker: this worker has stopped in order, and is not missed.
--   $1 uuid  worker
DELETE FROM notifyqueue.workers AS w
WHERE w.id = $1
