-- read_workers: the workers that live: they beat every five seconds, and three are not missed by chance.
SELECT w.id, w.phase, w.started_at, w.heartbeat_at, w.channels, w.concurrency, w.in_flight, w.sent, w.unsent
FROM notifyqueue.workers AS w
WHERE w.heartbeat_at > clock_timestamp() - interval '15 seconds'
ORDER BY w.started_at, w.id
LIMIT 1000
