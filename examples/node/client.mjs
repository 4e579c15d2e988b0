// A client for Notify Queue. Copy it, with proto/, into a project of yours.
import { fileURLToPath } from 'node:url';
import grpc from '@grpc/grpc-js';
import protoLoader from '@grpc/proto-loader';

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const definitions = protoLoader.loadSync(
  ['notifyqueue/v1/scheduler.proto', 'notifyqueue/v1/dispatcher.proto', 'error_details.proto'],
  {
    includeDirs: [here('../../proto'), here('.')],
    keepCase: true, // fields are called as in the contracts
    longs: String, // an int64 does not fit into a number
    enums: String,
    defaults: true,
    oneofs: true, // `recipient: 'address'` says which one is set
  },
);
const { notifyqueue } = grpc.loadPackageDefinition(definitions);

// UNAVAILABLE alone is tried again, and only by methods that may be: a schedule is safe under its idempotency key, and
// CreateEndpoint is no method of the Scheduler.
const serviceConfig = {
  loadBalancingConfig: [{ round_robin: {} }],
  methodConfig: [
    {
      name: [{ service: 'notifyqueue.v1.Scheduler' }],
      retryPolicy: {
        maxAttempts: 4,
        initialBackoff: '0.2s',
        maxBackoff: '2s',
        backoffMultiplier: 2,
        retryableStatusCodes: ['UNAVAILABLE'],
      },
    },
  ],
};

/** A refusal. `reason` is what to decide by; the message is for people. */
export class NotifyQueueError extends Error {
  constructor(error) {
    super(error.details, { cause: error });
    this.name = 'NotifyQueueError';
    this.code = grpc.status[error.code];
    this.reason = error.metadata?.get('error-reason')[0] ?? ''; // none where no server of ours has answered
    this.fields = violations(error.metadata?.get('grpc-status-details-bin')[0]);
  }
}

/** A service of the contracts. Each of its methods takes a request and answers a promise. */
export function connect(service, address, key, { credentials, timeout = 10_000 } = {}) {
  const client = new notifyqueue.v1[service](address, credentials ?? grpc.credentials.createInsecure(), {
    'grpc.service_config': JSON.stringify(serviceConfig),
  });
  const metadata = new grpc.Metadata();
  metadata.set('authorization', `Bearer ${key}`);
  const call = (method) => (request) =>
    new Promise((resolve, reject) => {
      const deadline = new Date(Date.now() + timeout); // without one a call may wait for ever
      client[method](request, metadata, { deadline }, (error, answer) =>
        error ? reject(new NotifyQueueError(error)) : resolve(answer),
      );
    });
  const methods = Object.keys(notifyqueue.v1[service].service);
  return { ...Object.fromEntries(methods.map((method) => [method, call(method)])), close: () => client.close() };
}

/** A google.protobuf.Timestamp. A Date in its place becomes 1970: it has none of the fields that proto-loader takes. */
export function timestamp(date) {
  const time = date.getTime();
  if (Number.isNaN(time)) throw new RangeError('not a time, as 2030-01-01T09:00:00Z is');
  const seconds = Math.floor(time / 1000);
  return { seconds, nanos: (time - seconds * 1000) * 1e6 };
}

function violations(bytes) {
  if (!bytes) return [];
  const { details } = definitions['google.rpc.Status'].deserialize(bytes);
  const found = details.find(({ type_url }) => type_url.endsWith('/google.rpc.BadRequest'));
  return found ? definitions['google.rpc.BadRequest'].deserialize(found.value).field_violations : [];
}
