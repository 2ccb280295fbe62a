/** A queue in one program: make a job, work on it, wait for what comes of it. */
import { Client, Worker } from "tidewheel";

const client = new Client({ url: process.env.TIDEWHEEL_SERVER ?? "http://127.0.0.1:8080", token: process.env.TIDEWHEEL_KEY });

const worker = new Worker(client, {
  handlers: {
    send_digest: async ({ user_id }, context) => {
      await context.progress(50, "rendering");
      const lines = await context.step("render", () => [`Dear ${user_id},`, "nothing happened today."]);
      return { sent_to: user_id, lines: lines.length };
    },
  },
  concurrency: 5,
  handleSignals: true,
});
const working = worker.run();

const job = await client.enqueue("send_digest", { user_id: "ada" }, { max_attempts: 5 });
console.log("enqueued", job.task || job.topic);
console.log("result", await client.result(job, { timeout: 30 }));

await worker.stop();
await working;
console.log("stopped");
