/** How long things take at most, by a clock that tests move on. */
import assert from "node:assert/strict";
import test from "node:test";
import { ResultTimeout, Worker } from "tidewheel";
import { stopClock } from "./clock.js";
import { granted, grants, idle, page, pretended, settling, silence } from "./pretend.js";
import { promised } from "./working.js";

const ended = (promise) => promise.then((value) => ({ value }), (error) => ({ error }));

test("what changes something is not tried for longer than the server remembers it", async (context) => {
  const clock = stopClock(context);
  const [begun, over] = [[], []];
  const deaf = (_, init) => {
    begun.push(clock.seconds);
    init.signal.addEventListener("abort", () => over.push(clock.seconds));
    return silence(init);
  };
  const { client, seen } = pretended({ enqueue: deaf, stats: deaf });
  const made = ended(client.enqueue("any", {}));
  await clock.pass(60);
  assert.equal((await made).error.name, "ConnectionError");
  assert.equal(new Set(seen.map(({ headers }) => headers.get("Tidewheel-Request-Id"))).size, 1);
  assert.equal(begun.length, 2, "thirty seconds, and what was left of fifty");
  assert.ok(over.at(-1) <= 51, `the last try ended after ${over.at(-1)} s`);
  const read = ended(client.stats());
  await clock.pass(200);
  assert.equal((await read).error.name, "ConnectionError");
  assert.equal(begun.length, 2 + 6, "what changes nothing is asked for as often as was said");
});

test("a result is not waited for longer than was said, whatever the server does", async (context) => {
  const clock = stopClock(context);
  const deaf = pretended({ result: (_, init) => silence(init) });
  const away = pretended({ result: () => new Response("", { status: 503, headers: { "Retry-After": "20" } }) });
  for (const { client } of [deaf, away]) {
    const waited = ended(client.result("some-job", { timeout: 2 }));
    await clock.pass(3.25);
    const { error } = await Promise.race([waited, { error: "still waiting" }]);
    assert.ok(error instanceof ResultTimeout, String(error));
    assert.equal(error.jobId, "some-job");
  }
  const patient = ended(deaf.client.result("some-job"));
  await clock.pass(80);
  assert.equal(await Promise.race([patient, "still waiting"]), "still waiting", "without a limit there is none");
  await assert.rejects(deaf.client.result("some-job", { timeout: NaN }), { name: "RangeError", message: /timeout is NaN/ });
});

test("a token that does not come is not waited for longer than an answer, and not after an abort", async (context) => {
  const clock = stopClock(context);
  const { client, seen } = pretended({}, { token: () => new Promise(() => undefined), retries: 0 });
  const asked = ended(client.stats());
  await clock.pass(31);
  assert.match((await Promise.race([asked, { error: "still waiting" }])).error.message ?? "", /no answer within 30 s/);
  const controller = new AbortController();
  const other = client.stats({}, { signal: controller.signal });
  controller.abort(new Error("never mind"));
  await assert.rejects(other, { message: "never mind" });
  assert.equal(seen.length, 0);
});

test("a stream is not silent while somebody works on one of its events", async (context) => {
  const clock = stopClock(context);
  const text = new TextEncoder();
  let stream;
  const { client, seen } = pretended({
    events: (_, { signal }) => {
      const body = new ReadableStream({ start: (controller) => void (stream = controller) });
      const mine = stream;
      signal.addEventListener("abort", () => mine.error(signal.reason)); // as fetch does
      return new Response(body);
    },
  });
  const say = (id) => stream.enqueue(text.encode(`event: topic\nid: ${id}\ndata: {"topic":"${id}"}\n\n`));
  const events = client.events();
  const first = events.next();
  await clock.pass(0.25);
  say("one");
  assert.equal((await first).value.id, "one");
  await clock.pass(100); // the consumer's
  say("two");
  assert.equal((await events.next()).value.id, "two");
  assert.equal(seen.length, 1, "on the same stream");
  const third = events.next();
  await clock.pass(46); // the server's
  assert.equal(seen.length, 2, "one that is silent is left");
  say("three");
  assert.equal((await third).value.id, "three");
  await events.return();
});

test("who goes on asking a worker to stop does not make its last while longer", async (context) => {
  const clock = stopClock(context);
  const begun = promised();
  const { give, reserve } = grants();
  give(granted());
  const { client } = pretended({ reserve, settle: (_, init) => (begun.keep(), silence(init)) });
  let over = false;
  const worker = new Worker(client, { handlers: { "made-up": () => 1 }, warn: () => undefined });
  const ran = worker.run().then(() => {
    over = true;
  });
  await begun.promise;
  void worker.stop({ grace: 0 });
  for (let second = 0; second < 12 && !over; second += 4) {
    await clock.pass(4);
    void worker.stop();
  }
  assert.ok(over, "ten seconds after the first call");
  await ran;
});

test("a server that asks for a minute gets a worker's words again within a second, and its questions within five", async (context) => {
  const clock = stopClock(context);
  const job = granted();
  const { settled, settle } = settling();
  const later = () => page(503, { "Retry-After": "60" });
  const settles = [later, later, settle];
  const polls = [later, () => ({ jobs: [job] })];
  const { client } = pretended({
    reserve: (...asked) => (polls.shift() ?? idle)(...asked),
    settle: (...asked) => settles.shift()(...asked),
  });
  const worker = new Worker(client, { handlers: { "made-up": () => 1 }, warn: () => undefined });
  const ran = worker.run();
  await clock.pass(5);
  assert.deepEqual(polls, []);
  await clock.pass(2);
  assert.equal(settled.get(job.id)?.outcome, "complete");
  void worker.stop();
  await clock.pass(1);
  await ran;
});

test("an outcome that did not reach the server says what went wrong, and not that the worker ended", async (context) => {
  const clock = stopClock(context);
  const { give, reserve } = grants();
  const answers = [() => page(503), (_, init) => silence(init)]; // the first is refused, the second never answered
  const settles = [...answers];
  const { client } = pretended({ reserve, settle: (...asked) => (settles.shift() ?? answers[1])(...asked) });
  const warnings = [];
  const worker = new Worker(client, { handlers: { "made-up": () => 1 }, warn: (message) => warnings.push(message) });
  const ran = worker.run();
  give(granted());
  await clock.pass(2);
  void worker.stop({ grace: 0 });
  await clock.pass(14);
  await ran;
  assert.match(warnings.join(), /did not reach the server: Unavailable: .* answered 503/);
});

test("an idle worker stops in a few seconds, although its server hangs", async (context) => {
  const clock = stopClock(context);
  const { client } = pretended({ reserve: (_, init) => silence(init) });
  const worker = new Worker(client, { handlers: { "made-up": () => 1 } });
  let over = false;
  const ran = worker.run().then(() => (over = true));
  await clock.pass(1);
  void worker.stop();
  await clock.pass(7);
  assert.ok(over);
  await ran;
});

test("nobody waits at the server for longer than proxies do", async (context) => {
  stopClock(context);
  const asked = [];
  const [polled, looked] = [promised(), promised()];
  const note = (keep) => (_, init, search) => {
    asked.push(Number(new URLSearchParams(search).get("wait")));
    keep();
    return idle(_, init, search);
  };
  const { client } = pretended({ reserve: note(polled.keep), result: note(looked.keep) });
  const controller = new AbortController();
  const waiting = ended(client.result("some-job", { signal: controller.signal }));
  const worker = new Worker(client, { handlers: { "made-up": () => 1 } });
  const ran = worker.run();
  await Promise.all([polled.promise, looked.promise]);
  assert.deepEqual(asked.map((seconds) => seconds < 30), [true, true], "some of them thirty seconds");
  controller.abort();
  await Promise.all([waiting, worker.stop(), ran]);
});

test("leases that cannot be extended are tried again once in a while, and not all the time", async (context) => {
  const clock = stopClock(context);
  const { give, reserve } = grants();
  const { client, seen } = pretended({ reserve, extend: () => page(502) });
  const finish = promised();
  const worker = new Worker(client, { handlers: { "made-up": () => finish.promise }, warn: () => undefined });
  const ran = worker.run();
  give(granted());
  await clock.pass(28);
  const { length } = seen.filter(({ word }) => word === "extend");
  assert.ok(length >= 12 && length <= 42, `${length} times in 18 s`);
  finish.keep();
  void worker.stop();
  await clock.pass(2);
  await ran;
});

test("a machine that slept for a minute repeats nothing that the server has forgotten", async (context) => {
  const clock = stopClock(context);
  let date = 0;
  context.mock.method(Date, "now", () => date);
  const { client, seen } = pretended({ enqueue: () => ((date += 60_000), page(503)) });
  const made = ended(client.enqueue("any", {}));
  await clock.pass(20);
  assert.equal((await made).error.status, 503);
  assert.equal(seen.length, 1);
});
