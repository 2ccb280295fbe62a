/** What must not compile; bad.txt has what the compiler says. */
import { Client, Worker } from "tidewheel";
import type { components } from "./tasks.js";

type Tasks = components["schemas"]["Tasks"];

const client = new Client<Tasks>({ url: "http://localhost:8080", token: "secret" });

await client.enqueue("add", { a: "1" });
await client.enqueue("add", { b: 1 });
await client.enqueue("add", { a: 1, c: 2 });
await client.enqueue("add");
await client.enqueue("send_digest", { user_id: "42", addresses: [{ city: "Paris" }] });
await client.enqueue("send_digest", { user_id: "42", addresses: [], kind: "hourly" });
await client.enqueue("send_mail", { user_id: "42" });
await client.enqueue("add", { a: 1 }, { dealy: 60 });
await client.enqueueMany([{ task: "charge", payload: { order: 7 } }]);

const total: string = await client.result(await client.enqueue("add", { a: 1 }));

new Worker(client, {
  handlers: {
    add: ({ a }) => `${a}`,
    send_digest: ({ user }) => 1,
  },
});
new Worker(client, { handlers: { send_mail: () => undefined } });

export { total };
