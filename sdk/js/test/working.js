/** Workers for tests: started, watched, and stopped when the test is over. */
import { Client, Worker } from "tidewheel";
import { client, token } from "./server.js";

/** A worker that runs until the test is over, and all it warned of. */
export function start(context, handlers, options = {}) {
  const { behind, ...rest } = options;
  const warnings = [];
  const own = behind ? new Client({ url: behind.url, token }) : client;
  const worker = new Worker(own, { handlers, warn: (message) => warnings.push(message), ...rest });
  const ended = worker.run();
  ended.catch(() => undefined); // told by whoever looks at it
  context.after(async () => {
    await worker.stop({ grace: 0 });
    await behind?.close(); // not before: a worker has something left to say
  });
  return { worker, ended, warnings };
}

/** A promise, and how to keep it. */
export function promised() {
  let keep;
  const promise = new Promise((resolve) => {
    keep = resolve;
  });
  return { promise, keep };
}

/** Resolves when the signal aborts, with why. */
export function aborted(signal) {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(signal.reason);
    signal.addEventListener("abort", () => resolve(signal.reason));
  });
}
