// node provider.mjs: a Provider service on PORT, which a worker calls where SMS_PROVIDER is `remote`. It prints a line for
// each text message that it takes, and takes each once, however often it is asked to.
import { fileURLToPath } from 'node:url';
import grpc from '@grpc/grpc-js';
import protoLoader from '@grpc/proto-loader';

const proto = fileURLToPath(new URL('../../proto', import.meta.url));
const options = { includeDirs: [proto], keepCase: true, longs: String, enums: String, defaults: true, oneofs: true };
const { notifyqueue } = grpc.loadPackageDefinition(protoLoader.loadSync('notifyqueue/v1/provider.proto', options));
const expected = process.env.PROVIDER_TOKEN ? `Bearer ${process.env.PROVIDER_TOKEN}` : undefined; // its REMOTE_TOKEN
const taken = new Map(); // ids by delivery key; in earnest a table, which outlives the process and is read by all of them

function deliver({ request, metadata }, callback) {
  if (expected && metadata.get('authorization')[0] !== expected) {
    return callback({ code: grpc.status.UNAUTHENTICATED, details: 'not with this token' });
  }
  callback(null, judge(request)); // to say no is an answer, too; an error would leave in doubt what has happened
}

function judge({ delivery_key: key, attempt, address, content, sms }) {
  if (content !== 'sms') return { outcome: 'OUTCOME_MISCONFIGURED', code: 'sms-only' };
  if (!address.startsWith('+')) return { outcome: 'OUTCOME_PERMANENT_ADDRESS', code: 'no-number' };
  if (!taken.has(key)) {
    taken.set(key, `example-${taken.size + 1}`);
    console.log(JSON.stringify({ id: taken.get(key), key, attempt, address, text: sms.text }));
  }
  return { outcome: 'OUTCOME_ACCEPTED', provider_message_id: taken.get(key) };
}

const server = new grpc.Server();
server.addService(notifyqueue.v1.Provider.service, { Deliver: deliver });
server.bindAsync(`127.0.0.1:${process.env.PORT ?? 50070}`, grpc.ServerCredentials.createInsecure(), (error, port) => {
  if (error) throw error;
  console.error(`port ${port}`);
});
process.on('SIGTERM', () => server.tryShutdown(() => process.exit(0)));
