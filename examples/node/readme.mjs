import grpc from '@grpc/grpc-js';
import protoLoader from '@grpc/proto-loader';

const options = { includeDirs: ['proto'], keepCase: true, longs: String, enums: String, defaults: true };
const { notifyqueue } = grpc.loadPackageDefinition(protoLoader.loadSync('notifyqueue/v1/scheduler.proto', options));
const scheduler = new notifyqueue.v1.Scheduler('127.0.0.1:50051', grpc.credentials.createInsecure());
const metadata = new grpc.Metadata();
metadata.set('authorization', `Bearer ${process.env.NOTIFYQUEUE_API_KEY}`);
const email = { subject: 'Your order is on its way', text: 'It left this morning.' };
const request = { idempotency_key: 'order-18-shipped', address: 'you@example.com', email };
scheduler.ScheduleNotification(request, metadata, { deadline: Date.now() + 10_000 }, (error, answer) =>
  console.log(error ? error.metadata.get('error-reason')[0] ?? error.details : answer.notification.notification_id));
