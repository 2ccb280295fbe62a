import assert from "node:assert/strict";
import test from "node:test";
import { Client, ConnectionError } from "tidewheel";
import { Proxy } from "./proxy.js";
import { collected, fresh, token } from "./server.js";

async function behind(context, options = {}) {
  const proxy = await Proxy.open();
  context.after(() => proxy.close());
  return [proxy, new Client({ url: proxy.url, token, ...options })];
}

test("a request that meets 502, 503, 504 or a broken line is repeated under the same id", async (context) => {
  const [proxy, client] = await behind(context);
  proxy.fates = [503, "cut", 502, 504];
  const job = await client.enqueue("js-3", {});
  const ids = proxy.seen.map((request) => request.headers["tidewheel-request-id"]);
  assert.equal(ids.length, 5);
  assert.equal(new Set(ids).size, 1);
  assert.match(ids[0], /^[A-Za-z0-9_.:-]{1,100}$/);
  await client.delete(job.id);
  assert.notEqual(proxy.seen[5].headers["tidewheel-request-id"], ids[0], "another request has another id");
  assert.equal((await client.stats()).failed >= 0, true);
  assert.equal(proxy.seen[6].headers["tidewheel-request-id"], undefined, "what changes nothing needs none");
});

test("repetitions end", async (context) => {
  const [proxy, client] = await behind(context, { retries: 1 });
  proxy.fates = [503, 503, 503];
  await assert.rejects(client.stats(), { name: "Unavailable", status: 503, code: "not_ours" });
  assert.equal(proxy.seen.length, 2);
  await proxy.away();
  await assert.rejects(client.stats(), (error) => {
    assert.ok(error instanceof ConnectionError);
    assert.match(error.message, /cannot be reached/);
    return true;
  });
});

test("what the server refuses is not repeated", async (context) => {
  const [proxy, client] = await behind(context);
  await assert.rejects(client.enqueue("add", { a: "one" }), { name: "InvalidInput" });
  assert.equal(proxy.seen.length, 1);
});

test("a server that says nothing is given up", async (context) => {
  const silent = (_, { signal }) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  const client = new Client({ url: "http://127.0.0.1:9", fetch: silent, timeout: 0.05, retries: 1 });
  await assert.rejects(client.stats(), { name: "ConnectionError", message: /no answer within 0.05 s/ });
});

test("a wait between two tries ends when it is aborted", async (context) => {
  const [proxy, client] = await behind(context);
  proxy.judge = () => 503;
  const controller = new AbortController();
  const asked = client.stats({}, { signal: controller.signal });
  setTimeout(() => controller.abort(new Error("enough")), 50);
  await assert.rejects(asked, { message: "enough" });
});

test("events of a job come until it ends, and none twice, although the line breaks", async (context) => {
  const [proxy, client] = await behind(context);
  const job = await client.enqueue("events", {}, { correlation_id: fresh() });
  const heard = [];
  for await (const { event, data } of client.events({ job: job.id })) {
    heard.push({ event, data });
    if (heard.length === 1) {
      proxy.cut();
      await client.cancel(job.id);
    }
  }
  const kinds = heard.map(({ event }) => event);
  assert.deepEqual([kinds[0], kinds.at(-1)], ["job", "end"]);
  const entries = heard.filter(({ event }) => event === "job").flatMap(({ data }) => data.entries);
  assert.deepEqual(entries.map((entry) => entry.what), ["enqueued", "cancelled"]);
  const streams = proxy.seen.filter((request) => request.path.startsWith("/api/jobs/events"));
  assert.equal(streams.length, 2);
  assert.equal(streams[0].headers["last-event-id"], undefined);
  assert.ok(streams[1].headers["last-event-id"]);
  assert.equal(streams[1].headers.authorization, `Bearer ${token}`);
});

test("who comes back with an id that nobody knows is told to read again", async (context) => {
  const [, client] = await behind(context);
  const controller = new AbortController();
  for await (const { event } of client.events({ topic: ["events", "pages"], lastEventId: "elsewhere-1", signal: controller.signal })) {
    assert.equal(event, "reset");
    break; // hangs up
  }
});

test("a stream that the server refuses is thrown, and so is an abort", async (context) => {
  const [, client] = await behind(context);
  await assert.rejects(collected(client.events({ job: crypto.randomUUID() })), { name: "NotFound" });
  const controller = new AbortController();
  setTimeout(() => controller.abort(new Error("enough")), 50);
  await assert.rejects(collected(client.events({ topic: "paused", signal: controller.signal })), { message: "enough" });
});
