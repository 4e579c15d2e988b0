// node webhook.mjs: an endpoint on PORT that verifies events by NOTIFYQUEUE_WEBHOOK_SECRET and prints a line for each.
import { createHmac, timingSafeEqual } from 'node:crypto';
import { createServer } from 'node:http';

const TOLERANCE = 300; // seconds
const LARGEST = 1 << 20; // bytes
const key = Buffer.from((process.env.NOTIFYQUEUE_WEBHOOK_SECRET ?? '').replace(/^whsec_/, ''), 'base64');
if (key.length < 24) throw new Error('NOTIFYQUEUE_WEBHOOK_SECRET is not set'); // with an empty key anybody can sign
const kept = new Set(); // ids of events, which may come twice; in earnest the key of a table

/** Standard Webhooks v1. `body` is the bytes that arrived: parsed and written again they are others. */
export function verify(headers, body) {
  const { 'webhook-id': id, 'webhook-timestamp': time, 'webhook-signature': signatures } = headers;
  if (!id || !/^\d+$/.test(time ?? '') || !signatures) return false;
  if (Math.abs(Date.now() / 1000 - Number(time)) > TOLERANCE) return false; // somebody plays an old one again
  const expected = createHmac('sha256', key).update(`${id}.${time}.`).update(body).digest();
  return signatures.split(' ').some((entry) => { // several while a secret is rotated
    const [version, signature = ''] = entry.split(',');
    const offered = Buffer.from(signature, 'base64');
    return version === 'v1' && offered.length === expected.length && timingSafeEqual(offered, expected);
  });
}

async function receive(request, response) {
  const parts = [];
  let size = 0;
  for await (const part of request) {
    if ((size += part.length) > LARGEST) return void response.writeHead(413).end();
    parts.push(part);
  }
  const body = Buffer.concat(parts);
  if (!verify(request.headers, body)) return void response.writeHead(401).end();
  keep(request.headers['webhook-id'], JSON.parse(body));
  response.writeHead(204).end(); // kept, and answered before any work: what takes too long is posted again
}

function keep(id, { type, data }) {
  if (kept.has(id)) return;
  kept.add(id);
  console.log(JSON.stringify({ id, type, notification_id: data.notification_id, labels: data.labels }));
}

const server = createServer((request, response) => {
  receive(request, response).catch(() => response.destroy()); // the sender has left
});
server.listen(Number(process.env.PORT ?? 8080), '127.0.0.1', () => console.error(`port ${server.address().port}`));
