import assert from "node:assert/strict";
import test from "node:test";
import * as tidewheel from "tidewheel";
import { Client, Worker } from "tidewheel";
import { Proxy } from "./proxy.js";
import { client, eventually, fresh, token, url } from "./server.js";
import { aborted, promised, start } from "./working.js";

const AT_ONCE = { retry: { kind: "fixed", delay: 0, jitter: false } };

test("a handler gets the payload and a context, and what it returns is the result", async (context) => {
  let seen;
  start(context, {
    "js-10": ({ name }, given) => {
      seen = given;
      return { greeting: `hello ${name}` };
    },
  });
  const job = await client.enqueue("js-10", { name: "Ada" }, { max_attempts: 4, correlation_id: "one", key: fresh() });
  assert.deepEqual(await client.result(job, { timeout: 10 }), { greeting: "hello Ada" });
  assert.deepEqual([seen.job.id, seen.attempt, seen.lastAttempt, seen.shuttingDown], [job.id, 1, false, false]);
  assert.deepEqual([seen.job.topic, seen.job.task, seen.job.correlation_id], ["js-10", "", "one"]);
  assert.equal((await client.get(job.id)).attempt, 1);
});

test("jobs of a task are run wherever they were routed to", async (context) => {
  start(context, { add: { topic: "js-11", run: ({ a, b }) => a - b } });
  const job = await client.enqueue("add", { a: 7, b: 2 }, { topic: "js-11" });
  assert.equal(await client.result(job, { timeout: 10 }), 5, "here, and not by the task of that name in Python");
});

test("as many handlers run at a time as were allowed, and their outcomes go back together", async (context) => {
  let running = 0;
  let most = 0;
  start(context, {
    "js-12": async () => {
      most = Math.max(most, (running += 1));
      await new Promise((resolve) => setTimeout(resolve, 10));
      running -= 1;
    },
  }, { concurrency: 4 });
  const jobs = await client.enqueueMany(Array.from({ length: 20 }, () => ({ task: "js-12", payload: {} })));
  await Promise.all(jobs.map((job) => client.result(job, { timeout: 10 })));
  assert.equal(most, 4);
});

test("a handler that throws is tried again, and the error is kept", async (context) => {
  const attempts = [];
  start(context, {
    "js-13": (_, { attempt, lastAttempt }) => {
      attempts.push([attempt, lastAttempt]);
      throw new RangeError("no\0 way");
    },
  });
  const job = await client.enqueue("js-13", {}, { max_attempts: 2, ...AT_ONCE });
  await assert.rejects(client.result(job, { timeout: 10 }), { name: "JobFailed" });
  assert.deepEqual(attempts, [[1, false], [2, true]]);
  const { error, attempts: kept } = await client.get(job.id);
  assert.deepEqual([error.code, error.message, error.retryable], ["handler_error", "RangeError: no\\x00 way", true]);
  assert.match(error.traceback, /worker\.test\.js/);
  assert.equal(kept.length, 2);
});

test("what is thrown says how the attempt ends", async (context) => {
  const before = new Map();
  const first = (job, error) => {
    const times = before.get(job.id) ?? 0;
    before.set(job.id, times + 1);
    if (times === 0) throw error;
  };
  start(context, {
    "js-14": ({ what }, { job, attempt, release }) => {
      switch (what) {
        case "retry after": first(job, new tidewheel.RetryAfter(0.01, "busy")); break;
        case "snooze": first(job, new tidewheel.Snooze(0.01)); break;
        case "release": if (!before.has(job.id)) { before.set(job.id, 1); release(0.01); } break;
        case "last": throw new tidewheel.RetryAfter(60, "in a minute");
        case "fail": throw new tidewheel.Fail("never", { code: "hopeless" });
        case "cancel": throw new tidewheel.Cancel("not needed");
        case "task error": throw new tidewheel.TaskError("declined", { code: "card", details: { order: 7 }, retryable: false });
        case "bad details": throw new tidewheel.TaskError("odd", { details: { n: 2n ** 64n }, retryable: false });
        case "text": throw "just text";
        case "no json": return 2n ** 64n;
        case "own json": return { toJSON() { throw new Error("not for you"); } };
        case "too large": return "x".repeat(100_000);
      }
      return attempt;
    },
  });
  const run = async (what, options = {}) => {
    const job = await client.enqueue("js-14", { what }, { max_attempts: 3, ...options });
    const ended = await client.result(job, { timeout: 10 }).catch((error) => error);
    return [ended instanceof Error ? ended.name : ended, ended.error];
  };
  const [retried, snoozed, released, failed, cancelled, declined, odd, text, nonsense, large, last, own] = await Promise.all([
    run("retry after"), run("snooze"), run("release"), run("fail"), run("cancel"), run("task error"), run("bad details"),
    run("text", { max_attempts: 1 }), run("no json"), run("too large"), run("last", { max_attempts: 1 }), run("own json"),
  ]);
  assert.equal(retried[0], 2, "counted");
  assert.equal(snoozed[0], 1, "not counted");
  assert.equal(released[0], 1, "not counted");
  assert.deepEqual([failed[0], failed[1].code, failed[1].message], ["JobFailed", "hopeless", "never"]);
  assert.deepEqual([cancelled[0], cancelled[1].message], ["JobCancelled", "not needed"]);
  assert.deepEqual([declined[0], declined[1].code, declined[1].details], ["JobFailed", "card", { order: 7 }]);
  assert.match(odd[1].details.details_dropped, /more than 64 bits/);
  assert.equal(text[1].message, "thrown: just text");
  assert.deepEqual([nonsense[0], nonsense[1].code], ["JobFailed", "invalid_result"]);
  assert.deepEqual([last[0], last[1].message], ["JobFailed", "in a minute"], "there is no other try after the last");
  assert.deepEqual([own[1].code, own[1].message], ["invalid_result", "the result cannot be written as JSON: Error: not for you"]);
  assert.deepEqual([large[0], large[1].code], ["JobFailed", "invalid_result"]);
});

test("progress is told, a checkpoint and finished steps are there for the next attempt", async (context) => {
  const done = [];
  const told = promised();
  start(context, {
    "js-15": async (_, job) => {
      const rows = await job.step("rows", async () => (done.push("rows"), [1, 2, { when: new Date(0) }]));
      await assert.rejects(job.step("rows", () => 0), /a name of its own/);
      if (job.attempt === 1) {
        const { progress, checkpoint } = job; // they can be taken out of it
        await progress(12.345, "reading", "first");
        told.keep((await client.get(job.job.id)).progress);
        await checkpoint({ row: 2 });
        await assert.rejects(progress(101), /percent is 101; 0 to 100/);
        throw new Error("once more");
      }
      const nothing = await job.step("nothing", () => void done.push("nothing"));
      return { rows, from: job.lastCheckpoint, nothing };
    },
  });
  const job = await client.enqueue("js-15", {}, AT_ONCE);
  assert.deepEqual(await client.result(job, { timeout: 10 }), {
    rows: [1, 2, { when: "1970-01-01T00:00:00.000Z" }],
    from: { row: 2 },
    nothing: null,
  });
  assert.deepEqual(await told.promise, { percent: 12.34, message: "reading", stage: "first" });
  assert.deepEqual(done, ["rows", "nothing"], "each once");
  assert.deepEqual((await client.get(job.id)).steps.map((step) => step.name), ["rows", "nothing"]);
});

test("a job that is cancelled while it runs is told so, and may finish all the same", async (context) => {
  const begun = [promised(), promised()];
  const reasons = [];
  start(context, {
    "js-16": async ({ place, obeys }, { signal }) => {
      begun[place].keep();
      reasons[place] = (await aborted(signal)).reason;
      if (obeys) signal.throwIfAborted();
      return "finished";
    },
  }, { lease: 600 }); // so long that nobody hears of it by extending one
  const [obedient, stubborn] = await client.enqueueMany([0, 1].map((place) => ({ task: "js-16", payload: { place, obeys: place === 0 } })));
  await Promise.all(begun.map(({ promise }) => promise));
  for (const { id } of [obedient, stubborn]) assert.equal((await client.cancel(id)).requested, true);
  await assert.rejects(client.result(obedient, { timeout: 10 }), { name: "JobCancelled" });
  assert.equal(await client.result(stubborn, { timeout: 10 }), "finished");
  assert.deepEqual(reasons, ["cancelled", "cancelled"]);
});

test("a handler that takes too long is stopped, and its job settled whether it obeys or not", async (context) => {
  const leave = promised();
  const reasons = [];
  const beside = [];
  let running = 0;
  start(context, {
    "js-17": async ({ obeys, quick }, { signal }) => {
      if (quick) {
        beside.push((running += 1));
        await new Promise((resolve) => setTimeout(resolve, 5));
        return (running -= 1);
      }
      reasons.push((await aborted(signal)).reason);
      if (obeys) throw signal.reason;
      await leave.promise;
    },
  }, { concurrency: 2 });
  const jobs = await client.enqueueMany([true, false].map((obeys) => ({ task: "js-17", payload: { obeys }, timeout: 0.1, max_attempts: 1 })));
  for (const job of jobs) {
    const error = await client.result(job, { timeout: 10 }).catch((thrown) => thrown);
    assert.deepEqual([error.name, error.error.code], ["JobFailed", "job_timeout"]);
    assert.match(error.error.message, /its timeout of 0.1 s/);
  }
  assert.deepEqual(reasons, ["timeout", "timeout"]);
  const quick = await client.enqueueMany([1, 2, 3].map(() => ({ task: "js-17", payload: { quick: true } })));
  await Promise.all(quick.map((job) => client.result(job, { timeout: 10 })));
  assert.deepEqual(beside, [1, 1, 1], "the slot of one who goes on is not given away");
  leave.keep();
});

test("the start of a handler is recorded when it takes a while, and before the last attempt begins", async (context) => {
  const seen = promised();
  const begun = promised();
  const leave = promised();
  start(context, {
    "js-18": async ({ last }, { job }) => {
      if (last) return void seen.keep((await client.get(job.id)).shown_state);
      begun.keep();
      await leave.promise;
    },
  });
  const [last, long] = await client.enqueueMany([
    { task: "js-18", payload: { last: true }, max_attempts: 1 },
    { task: "js-18", payload: { last: false } },
  ]);
  assert.equal(await seen.promise, "running", "and not merely claimed");
  await begun.promise;
  await eventually(async () => (await client.get(long.id)).shown_state === "running");
  leave.keep();
  await Promise.all([last, long].map((job) => client.result(job, { timeout: 10 })));
});

test("a job that nobody here can run is given back, and never failed", async (context) => {
  const proxy = await Proxy.open();
  const { warnings } = start(context, { "js-19": () => undefined }, { lanes: [{ topic: "js-19" }], behind: proxy });
  const job = await client.enqueue("add", { a: 1 }, { topic: "js-19" });
  await eventually(() => warnings.find((warning) => warning.includes(job.id)));
  const told = await eventually(async () => {
    const found = await client.get(job.id);
    return found.state === "pending" && found;
  });
  assert.deepEqual([told.attempt, told.last_error], [0, null]);
  const [settlement] = JSON.parse(proxy.seen.find(({ path }) => path.endsWith("/settle")).body).settlements;
  assert.deepEqual([settlement.counted, settlement.taken], [false, false], "as if nobody had seen it");
  await client.delete(job.id);
});

test("a worker is on the list while it works", async (context) => {
  const { worker } = start(context, { "js-20": () => undefined }, { name: fresh("worker"), concurrency: 3 });
  const mine = async () => (await client.workers()).find(({ name }) => name === worker.name);
  const told = await eventually(mine);
  assert.deepEqual([told.concurrency, told.topics, told.pid, told.version], [3, ["js-20"], process.pid, "0.1.0 (js), over HTTP"]);
  await worker.stop();
  assert.equal(await mine(), undefined);
});

test("a worker whose key is not good for it ends with the reason", async () => {
  const worker = new Worker(new Client({ url, token: "tw_nobody" }), { handlers: { "js-21": () => undefined } });
  await assert.rejects(worker.run(), { name: "NotAuthenticated" });
  assert.throws(() => worker.run(), /started before/);
  const early = new Worker(client, { handlers: { "js-21": () => undefined } });
  await early.stop();
  await early.run(); // it was told to stop before it began
});

test("options that cannot work are refused at once", () => {
  const make = (options) => () => new Worker(client, options);
  assert.throws(make({ handlers: {} }), /at least one/);
  assert.throws(make({ handlers: { "js-21": () => 0 }, lanes: [] }), /there are 0 lanes; 1 to 1000/);
  assert.throws(make({ handlers: { "js-21": () => 0 }, concurrency: 0 }), /concurrency is 0; 1 to 1000/);
  assert.throws(make({ handlers: { "js-21": () => 0 }, concurrency: 1.5 }), /concurrency is 1.5/);
  assert.throws(make({ handlers: { "js-21": () => 0 }, lease: NaN }), /lease is NaN; give a finite number/);
});

test("a token is what a client has, and a worker asks with it", async (context) => {
  let asked = 0;
  const renewing = new Client({ url, token: () => ((asked += 1), token) });
  const worker = new Worker(renewing, { handlers: { "js-22": () => "done" } });
  const ended = worker.run();
  context.after(() => worker.stop({ grace: 0 }));
  assert.equal(await client.result(await client.enqueue("js-22", {}), { timeout: 10 }), "done");
  await worker.stop();
  await ended;
  assert.ok(asked > 1);
});

test("an error that cannot be kept as it is stays the error it was", async (context) => {
  const { TaskError, RetryAfter, Fail } = tidewheel;
  const stack = (text) => Object.assign(new Error("boom"), { stack: text });
  const cases = {
    "a message that is cut within a character": () => new Error(`${"x".repeat(1999 - "Error: ".length)}😀😀`),
    "a traceback that is": () => stack(`😀${"y".repeat(15_999)}`),
    "a message of nothing but NUL": () => new Error("\0".repeat(3000)),
    "details with half a character": () => new TaskError("boom", { code: "odd", details: { text: "a\ud800b" } }),
    "details with NUL": () => new TaskError("boom", { code: "odd", details: { text: "a\0b" } }),
    "details that are no object": () => new TaskError("boom", { code: "odd", details: [1] }),
    "details of too many bytes": () => new TaskError("boom", { code: "odd", details: { text: "ü".repeat(12_000) } }),
    "details that change their mind": () => {
      let asked = 0;
      const toJSON = () => ((asked += 1) > 1 ? 2n ** 64n : "fine");
      return new TaskError("boom", { code: "odd", details: { toJSON } });
    },
    "a delay": () => new RetryAfter(3600, "later\ud800"),
    "the end": () => new Fail("enough\ud800", { code: "never\ud800" }),
  };
  start(context, {
    "js-42": ({ what }) => {
      throw cases[what]();
    },
  });
  const names = Object.keys(cases);
  const later = { max_attempts: 5, retry: { kind: "fixed", delay: 3600 } };
  const jobs = await client.enqueueMany(names.map((what) => ({ task: "js-42", payload: { what }, ...later })));
  for (const [place, name] of names.entries()) {
    const told = await eventually(async () => {
      const found = await client.get(jobs[place].id);
      return found.attempts.length === 1 && found;
    });
    const [{ error }] = told.attempts;
    assert.deepEqual([told.shown_state, told.attempt], [name === "the end" ? "failed" : "retrying", 1], `${name}: ${told.last_error}`);
    if (!name.startsWith("details")) continue;
    assert.deepEqual([error.code, error.message, error.retryable], ["odd", "boom", true], name);
    if (name.endsWith("half a character")) {
      assert.deepEqual(error.details, { text: "a\uFFFDb" });
      continue;
    }
    assert.match(error.details.details_dropped, /./, name);
  }
});

test("calls that nobody waits for do not end the process when the job is to stop", async (context) => {
  const [told, over] = [promised(), promised()];
  const unhandled = [];
  const listen = (reason) => unhandled.push(reason);
  process.on("unhandledRejection", listen);
  context.after(() => process.off("unhandledRejection", listen));
  start(context, {
    "js-43": async (_, { progress, checkpoint, step, signal }) => {
      void progress(101);
      told.keep();
      await aborted(signal);
      void checkpoint(2n ** 64n);
      void step("no", () => Promise.reject(new Error("no")));
      setTimeout(over.keep, 20);
      await over.promise;
      throw signal.reason;
    },
  });
  const job = await client.enqueue("js-43", {}, { timeout: 0.05, max_attempts: 1 });
  await told.promise;
  await assert.rejects(client.result(job, { timeout: 10 }), { name: "JobFailed" });
  assert.deepEqual(unhandled, []);
});

test("whoever listens is told of attempts that error, and of no others", async (context) => {
  const heard = [];
  const onError = (error, job) => {
    heard.push([job.payload.what, job.attempt, error]);
    if (job.payload.what === "thrown") throw new Error("a listener's own");
    if (job.payload.what === "fail") return Promise.reject(new Error("an async one's own"));
  };
  const thrown = { thrown: new RangeError("no"), fail: new tidewheel.Fail("never"), cancel: new tidewheel.Cancel("no need") };
  let snoozed = false;
  const { warnings } = start(context, {
    "js-44": async ({ what }, { attempt, signal }) => {
      if (what in thrown && attempt === 1) throw thrown[what];
      if (what === "snooze" && !snoozed) throw ((snoozed = true), new tidewheel.Snooze(0));
      if (what === "late") throw await aborted(signal);
      return what === "no json" ? 2n ** 64n : what === "large" ? "x".repeat(100_000) : 1;
    },
  }, { onError });
  const cases = ["fine", "thrown", "fail", "cancel", "snooze", "late", "no json", "large"];
  const jobs = await client.enqueueMany(cases.map((what) => ({
    task: "js-44", payload: { what }, max_attempts: what === "late" ? 1 : 3, ...AT_ONCE, ...(what === "late" && { timeout: 0.05 }),
  })));
  await Promise.allSettled(jobs.map((job) => client.result(job, { timeout: 10 })));
  const told = Object.fromEntries(heard.map(([what, attempt, error]) => [what, [attempt, error]]));
  assert.deepEqual(Object.keys(told).sort(), ["fail", "large", "late", "no json", "thrown"]);
  assert.equal(heard.length, 5, "each once");
  assert.deepEqual([told.thrown, told.fail], [[1, thrown.thrown], [1, thrown.fail]], "what was thrown itself");
  assert.deepEqual([told.late[1].reason, told["no json"][1].name], ["timeout", "RangeError"]);
  assert.deepEqual([told.large[0], told.large[1].code], [1, "invalid_result"], "the server does not keep it");
  assert.equal(warnings.length, 2);
  assert.ok(warnings.some((warning) => warning.includes("onError failed") && warning.includes("a listener's own")));
  assert.ok(warnings.some((warning) => warning.includes("an async one's own")));
  assert.equal(await client.result(jobs[1]), 1, "the job was tried again all the same");
});
