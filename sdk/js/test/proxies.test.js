/** Workers behind proxies that answer in the server's place. */
import assert from "node:assert/strict";
import test from "node:test";
import { Worker } from "tidewheel";
import { stopClock } from "./clock.js";
import { granted, grants, idle, page, pretended, settling } from "./pretend.js";
import { Proxy } from "./proxy.js";
import { client, eventually, token } from "./server.js";
import { promised, start } from "./working.js";

test("a proxy's page costs no result, no checkpoint and no progress", async (context) => {
  const proxy = await Proxy.open();
  const pages = { report: [400, 422], settle: [400] };
  proxy.judge = ({ path }) => pages[/\/work\/(\w+)/.exec(path)?.[1]]?.shift();
  const handler = async (_, { progress, checkpoint }) => {
    await progress(1);
    await checkpoint({ at: 1 });
    return "done";
  };
  start(context, { "js-40": handler }, { behind: proxy, lease: 30 });
  const job = await client.enqueue("js-40", {});
  assert.equal(await client.result(job, { timeout: 10 }), "done");
  assert.deepEqual(pages, { report: [], settle: [] }, "all of them were seen");
  assert.deepEqual((await client.get(job.id)).checkpoint, { at: 1 });
});

test("once a server has answered, pages in its place and tokens that cannot be had are waited out", async (context) => {
  const settled = [promised(), promised()];
  const noToken = () => {
    throw new Error("nobody makes tokens");
  };
  let secret = () => token;
  // What happens to one poll after the other; when the first job is settled nobody but polls asks for anything.
  const polls = [
    () => ({ jobs: [granted()] }),
    async () => {
      await settled[0].promise;
      secret = () => {
        secret = () => token;
        noToken();
      };
      return page(404);
    },
    () => ({ jobs: [granted()] }),
  ];
  const { client: own } = pretended({
    reserve: (...asked) => polls.shift()?.() ?? idle(...asked),
    settle: ({ settlements }) => (settled[polls.length === 0 ? 1 : 0].keep(), { accepted: settlements.map(() => true) }),
  }, { token: () => secret() });
  const warnings = [];
  const worker = new Worker(own, { handlers: { "made-up": () => 1 }, warn: (message) => warnings.push(message) });
  const ended = worker.run();
  context.after(() => worker.stop({ grace: 0 }));
  await Promise.race([settled[1].promise, ended]);
  assert.equal(warnings.length, 2);
  assert.match(warnings[0], /no jobs can be reserved; trying again: .* 404/);
  assert.equal(warnings[1], "the server answers again");
});

/** A settle behind a filter that lets no markup through, and what came through it. */
function filtered() {
  const settled = new Set();
  const filter = { shut: true };
  const settle = ({ settlements }) => {
    if (filter.shut && settlements.some(({ result }) => result === "<script>")) return page(403);
    for (const { id } of settlements) settled.add(id);
    return { accepted: settlements.map(() => true) };
  };
  return { settled, filter, settle };
}

test("a result that a filter turns away costs its neighbours nothing, and is tried again apart", async (context) => {
  const { settled, filter, settle } = filtered();
  const [blocked, beside, later] = [granted({ payload: "<script>" }), granted({ payload: "fine" }), granted({ payload: "fine" })];
  const { give, reserve } = grants();
  const { client: own, seen } = pretended({ reserve, settle });
  const gate = promised();
  const warnings = [];
  const handlers = { "made-up": async (payload) => (await gate.promise, payload) };
  const worker = new Worker(own, { handlers, warn: (message) => warnings.push(message) });
  const ended = worker.run();
  context.after(() => worker.stop({ grace: 0 }));
  give(blocked);
  give(beside);
  await eventually(() => seen.filter(({ word }) => word === "reserve").length === 3);
  gate.keep(); // both end in one turn, and are sent together
  await eventually(() => settled.has(beside.id));
  give(later);
  await eventually(() => settled.has(later.id));
  assert.ok(!settled.has(blocked.id));
  filter.shut = false;
  await eventually(() => settled.has(blocked.id));
  await worker.stop();
  await ended;
  assert.deepEqual(warnings, []);
});

test("a result that is turned away for a whole lease is given up, and its lease kept no longer", async (context) => {
  const clock = stopClock(context);
  const { settled, settle } = filtered();
  const job = granted({ payload: "<script>" });
  const { give, reserve } = grants();
  const { client: own, seen } = pretended({ reserve, settle });
  const warnings = [];
  const worker = new Worker(own, { handlers: { "made-up": (payload) => payload }, warn: (message) => warnings.push(message) });
  const ended = worker.run();
  give(job);
  await clock.pass(29);
  assert.deepEqual(warnings, []);
  await clock.pass(12);
  assert.match(warnings.join(), new RegExp(`the outcome of job ${job.id} did not reach the server: .* 403, .* perhaps a proxy`));
  assert.equal(settled.size, 0);
  const extensions = () => seen.filter(({ word }) => word === "extend").length;
  const before = extensions();
  assert.ok(before > 0);
  await clock.pass(30);
  assert.equal(extensions(), before);
  void worker.stop({ grace: 0 });
  await clock.pass(5);
  await ended;
});

test("a worker that finds no server at first ends with the reason", async () => {
  const run = (answers, options) => new Worker(pretended(answers, options).client, { handlers: { "made-up": () => 0 } }).run();
  await assert.rejects(run({ reserve: () => page(404) }), { name: "NotFound", code: "not_ours" });
  await assert.rejects(run({}, { token: () => Promise.reject(new Error("nobody makes tokens")) }), /nobody makes tokens/);
});

test("the start of a last attempt waits out a page in the server's place, however long its lease is", async (context) => {
  const clock = stopClock(context);
  const { give, reserve } = grants();
  give(granted({ attempt: 3, lease_seconds: 600, lease_left: 600 }));
  let shut = true;
  const settled = [];
  const { client: own } = pretended({
    reserve,
    start: ({ leases }) => (shut ? page(403) : { held: leases.map(() => true) }),
    settle: ({ settlements }) => (settled.push(...settlements), { accepted: settlements.map(() => true) }),
  });
  const worker = new Worker(own, { handlers: { "made-up": () => "ran" }, warn: () => undefined });
  const ended = worker.run();
  await clock.pass(120);
  assert.deepEqual(settled, []);
  shut = false;
  await clock.pass(3);
  assert.deepEqual(settled.map(({ outcome, result }) => [outcome, result]), [["complete", "ran"]]);
  void worker.stop({ grace: 0 });
  await clock.pass(5);
  await ended;
});

test("JSON of somebody else's with a good status is no answer: what it was said to is said again", async (context) => {
  const { settled, settle } = settling();
  const { give, reserve } = grants();
  const odd = [{ status: "maintenance" }, { accepted: [] , held: [] }, [], null, { accepted: true, held: "yes", steps: {} }];
  const once = (answer) => {
    const left = [...odd];
    return (...asked) => (left.length > 0 ? Response.json(left.shift()) : answer(...asked));
  };
  const clock = stopClock(context);
  const held = (name) => (body) => ({ held: body[name].map(() => true) });
  const { client: own, seen } = pretended({
    reserve,
    start: once(held("leases")),
    report: once(held("reports")),
    steps: once(() => ({ held: true, steps: [] })),
    settle: once(settle),
    time: () => ({ status: "maintenance" }),
  });
  const job = granted({ attempt: 3, lease_seconds: 600, lease_left: 600 });
  let runs = 0;
  const handler = async (_, { step }) => step("one", () => (runs += 1));
  const worker = new Worker(own, { handlers: { "made-up": handler }, warn: () => undefined });
  const ended = worker.run();
  give(job);
  await clock.pass(25);
  assert.deepEqual([settled.get(job.id)?.result, runs], [1, 1]);
  assert.match(seen.find(({ word }) => word === "beat").body.started_at, /Z$/);
  void worker.stop();
  await clock.pass(2);
  await ended;
});
