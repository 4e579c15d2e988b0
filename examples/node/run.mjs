// The frame of the commands beside it: whom they call, as whom, and what they print.
import { connect, NotifyQueueError } from './client.mjs';

/** Prints what `body` answers as JSON; a refusal, or a value that is none, likewise, and then exits with 1. */
export async function run(service, defaultAddress, body) {
  const address = process.env.NOTIFYQUEUE_ADDRESS ?? defaultAddress;
  const client = connect(service, address, process.env.NOTIFYQUEUE_API_KEY);
  try {
    console.log(JSON.stringify(await body(client)));
  } catch (error) {
    if (!(error instanceof NotifyQueueError || error instanceof RangeError)) throw error;
    const { code, reason, fields, message } = error;
    console.error(JSON.stringify({ code, reason, fields, message }));
    process.exitCode = 1;
  } finally {
    client.close(); // or the process would not end
  }
}
