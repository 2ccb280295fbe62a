/** Grants that a real server makes only when a worker was lost, or by the millisecond. */
import assert from "node:assert/strict";
import test from "node:test";
import { Worker } from "tidewheel";
import { stopClock } from "./clock.js";
import { granted, grants, idle, page, pretended, refusal, settling, silence } from "./pretend.js";
import { eventually } from "./server.js";
import { promised } from "./working.js";

test("a job that was lost with two workers runs alone, and says so before it begins", async (context) => {
  const clock = stopClock(context);
  const [first, suspect, later] = [granted(), granted({ losses: 2 }), granted()];
  const { give, reserve } = grants();
  const { settled, settle } = settling();
  const finish = { [first.id]: promised(), [suspect.id]: promised() };
  const [ran, started] = [[], []];
  const start = ({ leases, alone }) => {
    started.push(...leases.map(({ id }) => [id, alone, ran.includes(id)]));
    return { held: leases.map(() => true) };
  };
  const handler = async (_, { job }) => {
    ran.push(job.id);
    await finish[job.id]?.promise;
  };
  const worker = new Worker(pretended({ reserve, settle, start }).client, { handlers: { "made-up": handler }, concurrency: 4 });
  const ended = worker.run();
  await clock.pass(0);
  give(first);
  await clock.pass(0);
  give(suspect);
  give(later);
  await clock.pass(0);
  assert.deepEqual(ran, [first.id], "neither starts beside it, nor does anything else meanwhile");
  assert.deepEqual(started, [], "handlers that have just begun are not reported");
  await clock.pass(0.5); // less than a suspect waits for its room
  assert.deepEqual(ran, [first.id]);
  assert.deepEqual(started.splice(0), [[first.id, false, true]], "it runs for a while, and not alone");
  finish[first.id].keep();
  await clock.pass(0);
  assert.deepEqual(started, [[suspect.id, true, false]]);
  assert.deepEqual(ran, [first.id, suspect.id]);
  finish[suspect.id].keep();
  await clock.pass(0);
  assert.ok(settled.has(later.id));
  assert.deepEqual(ran, [first.id, suspect.id, later.id]);
  void worker.stop();
  await clock.pass(1);
  await ended;
});

test("a suspect that gets no room is given back for a moment, uncounted", async (context) => {
  const [first, suspect, later] = [granted(), granted({ losses: 2 }), granted()];
  const { give, reserve } = grants();
  const { settled, settle } = settling();
  const finish = promised();
  const handler = async (_, { job }) => {
    if (job.id === first.id) await finish.promise;
  };
  const worker = new Worker(pretended({ reserve, settle }).client, { handlers: { "made-up": handler }, concurrency: 4 });
  const ended = worker.run();
  context.after(() => worker.stop({ grace: 0 }));
  for (const job of [first, suspect, later]) give(job);
  await eventually(() => settled.has(later.id), "the others go on");
  const { outcome, delay, counted, taken } = settled.get(suspect.id);
  assert.deepEqual([outcome, delay, counted, taken], ["release", 4, false, false]);
  finish.keep();
  await worker.stop();
  await ended;
});

test("jobs that are granted to the word to stop are given back, although the poll came back empty", async () => {
  const job = granted();
  const { settled, settle } = settling();
  const [polled, empty] = [promised(), promised()];
  const { client } = pretended({
    settle,
    reserve: async (_, init, search) => {
      if (search !== "?wait=0") {
        polled.keep();
        await Promise.race([empty.promise, silence(init)]);
        return { jobs: [] };
      }
      empty.keep(); // a server that is being stopped, or whose patience ended just then
      for (let turn = 0; turn < 5; turn += 1) await new Promise((resolve) => setImmediate(resolve));
      return { jobs: [job] };
    },
  });
  const worker = new Worker(client, { handlers: { "made-up": () => assert.fail("it is to stop") } });
  const ended = worker.run();
  await polled.promise;
  await worker.stop();
  await ended;
  assert.equal(settled.get(job.id)?.outcome, "release");
});

test("a token that expired while the poll waited is asked for anew; twice in a row is a refusal", async () => {
  const { settled, settle } = settling();
  const polls = [() => refusal(401), () => ({ jobs: [granted()] }), () => refusal(401), () => page(502), () => refusal(401), () => refusal(401)];
  let tokens = 0;
  const token = () => `token-${(tokens += 1)}`;
  const { client, seen } = pretended({ settle, reserve: () => polls.shift()() }, { token });
  const warnings = [];
  const worker = new Worker(client, { handlers: { "made-up": () => 1 }, warn: (message) => warnings.push(message) });
  await assert.rejects(worker.run(), { name: "NotAuthenticated" });
  assert.equal(settled.size, 1);
  assert.deepEqual(polls, []);
  const asked = seen.filter(({ word }) => word === "reserve").map(({ headers }) => headers.get("Authorization"));
  assert.equal(new Set(asked).size, 6, "each time with a token of its own");
  assert.equal(warnings.length, 1, "of the page alone");
});

test("jobs whose answer lay there while the event loop was blocked are extended before they begin", async (context) => {
  const clock = stopClock(context);
  const [taken, kept, later, fresh] = [granted(), granted(), granted(), granted()];
  const { give, reserve } = grants();
  const { settled, settle } = settling();
  const asked = [];
  const extend = ({ leases }) => {
    asked.push(...leases.map(({ id }) => id));
    return { held: leases.map(({ id }) => id !== taken.id), cancel_requested: leases.map(() => false) };
  };
  const warnings = [];
  const { client } = pretended({ reserve, settle, extend });
  const worker = new Worker(client, { handlers: { "made-up": (_, { job }) => job.id }, warn: (message) => warnings.push(message) });
  const ended = worker.run();
  await clock.pass(1);
  clock.block(40); // longer than a lease
  give(taken);
  await clock.pass(0);
  give(kept);
  await clock.pass(0);
  assert.deepEqual([...settled.keys()], [kept.id], "the other is somebody else's by now");
  assert.match(warnings.join(), /of 1 jobs that came 1 were lost: the event loop was blocked/);
  await clock.pass(1);
  clock.block(40);
  await clock.pass(0.25); // a timer is the first to notice, and the answer is read after that
  give(later);
  await clock.pass(0);
  assert.ok(settled.has(later.id));
  await clock.pass(1);
  give(fresh);
  await clock.pass(0);
  assert.ok(settled.has(fresh.id));
  assert.deepEqual(asked, [taken.id, kept.id, later.id], "one that came just now is not asked about");
  void worker.stop();
  await clock.pass(1);
  await ended;
});

test("a job does not begin after its lease, when one that began just before blocked the event loop", async (context) => {
  const clock = stopClock(context);
  const [first, second] = [granted(), granted()];
  const polls = [() => ({ jobs: [first, second] })];
  const { client } = pretended({ reserve: (...asked) => (polls.shift() ?? idle)(...asked) });
  const ran = [];
  const handler = (_, { job }) => {
    ran.push(job.id);
    clock.block(40);
  };
  const worker = new Worker(client, { handlers: { "made-up": handler }, warn: () => undefined });
  const ended = worker.run();
  await clock.pass(1);
  assert.deepEqual(ran, [first.id]);
  void worker.stop();
  await clock.pass(1);
  await ended;
});

test("a worker that is to stop asks for a while what it was granted last", async (context) => {
  const clock = stopClock(context);
  const job = granted();
  const { settled, settle } = settling();
  const answers = [page(502), page(502), page(502), { jobs: [job] }];
  const { client, seen } = pretended({ settle, reserve: (body, init, search) => (search === "?wait=0" ? answers.shift() : silence(init)) });
  const worker = new Worker(client, { handlers: { "made-up": () => assert.fail("it is to stop") } });
  const ended = worker.run();
  await clock.pass(1);
  void worker.stop();
  await clock.pass(5);
  await ended;
  assert.equal(settled.get(job.id)?.outcome, "release");
  const ids = seen.filter(({ word }) => word === "reserve").map(({ headers }) => headers.get("Tidewheel-Request-Id"));
  assert.deepEqual([ids.length, new Set(ids).size], [5, 1]);
});

test("a word to stop is the first one for a worker that ends because the server refused", async () => {
  const { settled, settle } = settling();
  const polls = [() => ({ jobs: [granted()] }), () => refusal(403)];
  const { client } = pretended({ settle, reserve: (...asked) => (polls.shift() ?? idle)(...asked) });
  const [refused, finish] = [promised(), promised()];
  const worker = new Worker(client, {
    handlers: {
      "made-up": async (_, context) => {
        await eventually(() => context.shuttingDown); // by itself
        refused.keep(context.signal);
        await finish.promise;
        return "finished";
      },
    },
    concurrency: 2,
  });
  const ended = worker.run();
  ended.catch(() => undefined);
  const signal = await refused.promise;
  const stopped = worker.stop({ grace: 20 });
  assert.equal(signal.aborted, false, "it may finish");
  finish.keep();
  await stopped;
  await assert.rejects(ended, { name: "NotPermitted" });
  assert.deepEqual([...settled.values()].map(({ result }) => result), ["finished"]);
});
