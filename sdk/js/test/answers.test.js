/** What is said in the server's place, and what must not be said to it. */
import assert from "node:assert/strict";
import http from "node:http";
import test from "node:test";
import { Client, InvalidInput, ProblemError } from "tidewheel";
import { stopClock } from "./clock.js";
import { page, pretended, refusal } from "./pretend.js";
import { promised } from "./working.js";

test("only the server's own word says that input is bad", async () => {
  const json = (status) => Response.json({ code: "WAF-17", detail: "blocked" }, { status });
  const told = async (answer) => pretended({ stats: () => answer }, { retries: 0 }).client.stats().catch((error) => error);
  for (const answer of [page(400), page(422), json(400)]) {
    const error = await told(answer);
    assert.ok(error instanceof ProblemError && !(error instanceof InvalidInput), error.name);
    assert.deepEqual([error.code, error.problem], ["not_ours", undefined]);
  }
  for (const answer of [refusal(400), refusal(422), page(413)]) assert.ok((await told(answer)) instanceof InvalidInput);
});

test("redirects are not followed, and it is said where they lead", async (context) => {
  const seen = [];
  const server = http.createServer((request, response) => {
    seen.push(request.url);
    response.writeHead(308, { Location: "https://elsewhere.example/api/jobs/stats" }).end("moved");
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  context.after(() => server.close());
  const client = new Client({ url: `http://127.0.0.1:${server.address().port}`, token: "secret" });
  const message = /answered 308 .* on to https:\/\/elsewhere\.example\/api\/jobs\/stats, .* as url/;
  await assert.rejects(client.stats(), { name: "ProblemError", status: 308, message });
  await assert.rejects(client.events().next(), { status: 308 });
  assert.equal(seen.length, 2);
  // A browser tells that there was one, and no more.
  const opaque = Object.defineProperties(Response.error(), { type: { value: "opaqueredirect" } });
  await assert.rejects(pretended({ stats: () => opaque }).client.stats(), { status: 0, message: /a redirect and sends everybody elsewhere/ });
});

test("numbers and times that JSON would make null are refused, and nothing is sent", async () => {
  const { client, seen } = pretended({});
  const wrong = [
    [{ run_at: new Date(NaN) }, /run_at is an Invalid Date; give a time that exists/],
    [{ delay: NaN }, /delay is NaN; give a finite number/],
    [{ timeout: Infinity }, /timeout is Infinity/],
    [{ retry: { kind: "fixed", delay: NaN } }, /retry\.delay is NaN/],
    [{ retry: { kind: "sequence", delays: [1, -Infinity] } }, /retry\.delays\.1 is -Infinity/],
  ];
  for (const [options, message] of wrong) {
    await assert.rejects(client.enqueue("any", {}, options), { name: "RangeError", message });
    await assert.rejects(client.enqueueMany([{ task: "any", ...options }]), { name: "RangeError", message });
  }
  await assert.rejects(client.topics.pause("mail", { seconds: NaN }), { name: "RangeError", message: /seconds is NaN/ });
  await assert.rejects(client.topics.kick("mail", { count: NaN }), { name: "RangeError", message: /count is NaN/ });
  assert.equal(seen.length, 0);
  await client.enqueue("any", { odd: NaN }, { run_at: new Date(0) });
  assert.deepEqual(seen[0].body, { topic: "any", payload: { odd: null }, run_at: "1970-01-01T00:00:00.000Z" }, "payloads are JSON as it is");
});

test("names that would lead to another path are refused", async () => {
  const { client, seen } = pretended({});
  for (const name of [".", "..", ""]) {
    const message = new RegExp(`is ${JSON.stringify(name)}; in an address`.replaceAll(".", "\\."));
    await assert.rejects(client.topics.pause(name), { name: "RangeError", message });
    await assert.rejects(client.delete(name), { name: "RangeError", message });
    await assert.rejects(client.result(name), { name: "RangeError", message });
  }
  assert.equal(seen.length, 0);
  await client.topics.pause("a/b..");
  assert.equal(seen[0].address, "http://pretended/api/jobs/topics/a%2Fb../pause");
});

test("a stream that breaks before its first event goes on where it stood", async () => {
  const said = [": welcome\nid: here-7\n\n", 'event: end\nid: here-8\ndata: {"detail":"all"}\n\n'];
  const { client, seen } = pretended({ events: () => new Response(said.shift()) });
  const { value } = await client.events({ job: "any" }).next();
  assert.equal(value.event, "end");
  assert.deepEqual(seen.map(({ headers }) => headers.get("Last-Event-ID")), [null, "here-7"]);
});

test("a stream that came before comes again after a page in its place; the server's own refusal ends it", async () => {
  const event = (id) => new Response(`event: topic\nid: ${id}\ndata: {"topic":"${id}"}\n\n`);
  const said = [event("one"), page(404), page(403), event("two"), refusal(403)];
  const { client, seen } = pretended({ events: () => said.shift() });
  const came = [];
  const all = async () => {
    for await (const { id } of client.events()) came.push(id);
  };
  await assert.rejects(all(), { name: "NotPermitted", detail: "no" });
  assert.deepEqual(came, ["one", "two"]);
  assert.equal(seen.length, 5);
  const { client: another } = pretended({ events: () => page(404) });
  await assert.rejects(another.events().next(), { name: "NotFound" }, "what never came may be the wrong address");
});

test("a quiet stream that is cut now and then is taken up again at once", async (context) => {
  const clock = stopClock(context);
  const text = new TextEncoder();
  let stream;
  const { client, seen } = pretended({ events: () => new Response(new ReadableStream({ start: (controller) => void (stream = controller) })) });
  const next = client.events().next();
  for (let cut = 1; cut <= 8; cut += 1) {
    await clock.pass(2);
    assert.equal(seen.length, cut);
    stream.enqueue(text.encode(": ping\n\n"));
    await clock.pass(0.25);
    stream.close();
  }
  await clock.pass(1);
  stream.enqueue(text.encode('event: end\nid: last\ndata: {"detail":"all"}\n\n'));
  assert.equal((await next).value.id, "last");
  const { client: other, seen: asked } = pretended({ events: () => new Response(": welcome\n\n") });
  const controller = new AbortController();
  const never = other.events({ signal: controller.signal }).next();
  await clock.pass(60);
  assert.ok(asked.length <= 15, `${asked.length} times: one that is cut at once is none that works`);
  controller.abort(new Error("enough"));
  await assert.rejects(never, { message: "enough" });
});

test("after an abort no more events are told, although they have come", async () => {
  const event = (id) => `event: topic\nid: ${id}\ndata: {"topic":"${id}"}\n\n`;
  const { client } = pretended({ events: () => new Response(event("one") + event("two")) });
  const controller = new AbortController();
  const events = client.events({ signal: controller.signal });
  assert.equal((await events.next()).value.id, "one");
  controller.abort(new Error("enough"));
  await assert.rejects(events.next(), { message: "enough" });
});

test("a stream that came before is taken up again although a token could not be had meanwhile", async () => {
  const event = (id) => new Response(`event: topic\nid: ${id}\ndata: {"topic":"${id}"}\n\n`);
  const said = [event("one"), event("two"), new Response("event: topic\nid: bad\ndata: <html>\n\n")];
  const tokens = [() => "first", () => JSON.parse("<html>"), () => "third", () => "fourth"];
  const { client } = pretended({ events: () => said.shift() }, { token: () => tokens.shift()() });
  const events = client.events();
  assert.equal((await events.next()).value.id, "one");
  assert.equal((await events.next()).value.id, "two");
  await assert.rejects(events.next(), { name: "TidewheelError", message: /no JSON/ }, "what the server itself says would be the same again");
});

test("a signal is let go of when nothing waits for it any more", async () => {
  const { signal } = new AbortController();
  const listeners = new Set();
  const { addEventListener: add, removeEventListener: remove } = signal;
  signal.addEventListener = (name, listener, ...rest) => (listeners.add(listener), add.call(signal, name, listener, ...rest));
  signal.removeEventListener = (name, listener) => (listeners.delete(listener), remove.call(signal, name, listener));
  const [asked, answer] = [promised(), promised()];
  const { client } = pretended({ stats: async () => (asked.keep(), answer.promise) });
  const calls = [client.stats({}, { signal }), client.stats({}, { signal })];
  await asked.promise;
  assert.equal(listeners.size, 1, "one for both");
  answer.keep({});
  await Promise.all(calls);
  assert.equal(listeners.size, 0);
  await client.stats({}, { signal });
  assert.equal(listeners.size, 0, "and again");
});
