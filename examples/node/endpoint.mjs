// node endpoint.mjs URL: has events posted to this URL. The secret that it prints is shown once.
import { run } from './run.mjs';

const [url] = process.argv.slice(2);

await run('WebhookDispatcher', '127.0.0.1:50053', async (dispatcher) => {
  const { endpoint, secret } = await dispatcher.CreateEndpoint({ url });
  return { endpoint_id: endpoint.endpoint_id, secret };
});
