/** What has to compile. `Tasks` is made from tests/sdk/jobs.py, as the README says. */
import { Client, Worker, type Enqueued } from "tidewheel";
import type { components } from "./tasks.js";

type Tasks = components["schemas"]["Tasks"];

const client = new Client<Tasks>({ url: "http://localhost:8080", token: "secret" });

const sum: Enqueued<number> = await client.enqueue("add", { a: 1 }); // b has a default
const total: number = await client.result(sum, { timeout: 10 });
await client.enqueue("add", { a: total, b: 2 }, { delay: 60, key: "one", run_at: new Date(), signal: AbortSignal.timeout(5) });
await client.enqueue("send_digest", { user_id: "42", addresses: [{ street: "Main Street 1" }], kind: "weekly" });
await client.enqueue("measure", new Uint8Array(3));
await client.enqueueMany([
  { task: "add", payload: { a: 1 }, priority: 5 },
  { task: "charge", payload: { order: 7, amount: 9.5, notes: { gift: true, from: ["Ada"] } } },
]);

const worker = new Worker(client, {
  handlers: {
    add: ({ a, b = 1 }) => a + b,
    send_digest: {
      topic: "mail",
      run: async ({ user_id, addresses }, context) => {
        await context.progress(50, `rendering for ${user_id}`);
        const cities: (string | undefined)[] = addresses.map((address) => address.city);
        return context.step("send", () => cities.length);
      },
    },
  },
  concurrency: 4,
  onError: (error, job) => console.error(job.task, job.attempt, error),
});
await worker.run();

// Tasks may be written by hand, as an interface as well.
interface OwnTasks {
  greet: { payload: { name: string }; result: string };
  ping: { payload: { loud?: boolean }; result: null };
}
const own = new Client<OwnTasks>({ url: "http://localhost:8080" });
const greeting: string = await own.result(await own.enqueue("greet", { name: "Ada" }));
await own.enqueue("ping"); // an empty payload fits, so there need not be one

// Without tasks anything goes.
const anything = new Client({ url: "http://localhost:8080" });
await anything.enqueue("whatever", { of: ["any", "kind"] });
await anything.enqueue("nothing");
new Worker(anything, { handlers: { whatever: ({ of }: { of: string[] }) => of.join(greeting) } });
