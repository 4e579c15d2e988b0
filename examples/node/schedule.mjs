// node schedule.mjs KEY ADDRESS [TIME]: schedules a mail, due now or at a time such as 2030-01-01T09:00:00Z.
import { timestamp } from './client.mjs';
import { run } from './run.mjs';

const [key, address, time] = process.argv.slice(2);

await run('Scheduler', '127.0.0.1:50051', async (scheduler) => {
  const { notification, replayed } = await scheduler.ScheduleNotification({
    idempotency_key: key, // the same whenever the request is repeated
    address,
    email: { subject: 'Your order is on its way', text: 'It left this morning.' },
    ...(time && { due_time: timestamp(new Date(time)) }),
    priority: 'PRIORITY_HIGH',
    labels: { order: '17' },
  });
  return { notification_id: notification.notification_id, status: notification.status, replayed };
});
