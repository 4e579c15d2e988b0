// node cancel.mjs KEY: cancels what was scheduled with this key. Once a worker has it, that is STATUS_CONFLICT.
import { run } from './run.mjs';

const [key] = process.argv.slice(2);

await run('Scheduler', '127.0.0.1:50051', async (scheduler) => {
  const request = { idempotency_key: key, reason: 'The order was withdrawn' };
  const { notification } = await scheduler.CancelNotification(request);
  return { notification_id: notification.notification_id, status: notification.status };
});
