// node worker.mjs KIND LOG: the same as worker.py, over the TypeScript SDK.
import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, Worker } from "../../sdk/js/dist/index.js";

const [kind, log] = process.argv.slice(2);
const client = new Client({ url: process.env.TIDEWHEEL_URL, token: process.env.TIDEWHEEL_TOKEN });

function say(what, n, { attempt, job }) {
  appendFileSync(log, JSON.stringify({ what, kind, n, attempt, fence: job.fence, pid: process.pid }) + "\n");
}

const worker = new Worker(client, {
  concurrency: 20,
  lease: 2,
  handleSignals: true,
  handlers: {
    count: async ({ n, seconds = 0 }, context) => {
      say("start", n, context);
      await sleep(seconds * 1000);
      say("end", n, context);
      return { kind, fence: context.job.fence };
    },
  },
});
await worker.run();
