import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import test from "node:test";
import { Client, Worker } from "tidewheel";
import { Proxy } from "./proxy.js";
import { client, eventually, token, url } from "./server.js";
import { aborted, promised, start } from "./working.js";

const isFor = (verb) => ({ path }) => path.startsWith(`/api/jobs/work/${verb}`);

test("a long handler keeps its job: its lease is extended", async (context) => {
  const proxy = await Proxy.open();
  start(context, { "js-23": () => new Promise((resolve) => setTimeout(() => resolve("done"), 2500)) }, { lease: 2, behind: proxy });
  const job = await client.enqueue("js-23", {});
  assert.equal(await client.result(job, { timeout: 10 }), "done");
  assert.equal((await client.get(job.id)).attempt, 1);
  const extensions = proxy.seen.filter(isFor("extend"));
  assert.ok(extensions.length >= 3 && extensions.length <= 6, `${extensions.length} extensions: every third of the lease`);
});

test("whoever lost the lease is stopped, and writes nothing", async (context) => {
  const proxy = await Proxy.open();
  const begun = promised();
  const lost = promised();
  const over = promised();
  const { warnings } = start(context, {
    "js-24": async (_, job) => {
      begun.keep();
      lost.keep(await aborted(job.signal));
      await over.promise;
      await assert.rejects(job.checkpoint({ late: true }), { name: "LeaseLost" });
      return "from the one who lost it";
    },
  }, { lease: 2, behind: proxy, concurrency: 1 });
  const job = await client.enqueue("js-24", {}, { max_attempts: 5 });
  await begun.promise;
  await proxy.away();
  assert.equal((await lost.promise).reason, "lease_lost");
  const other = new Worker(client, { handlers: { "js-24": () => "from the other one" } });
  const ended = other.run();
  assert.equal(await client.result(job, { timeout: 10 }), "from the other one");
  await other.stop();
  await ended;
  await proxy.back();
  over.keep();
  await eventually(() => warnings.find((warning) => warning.includes("was taken from this worker")));
  const told = await client.get(job.id);
  assert.deepEqual([told.result, told.checkpoint], ["from the other one", null]);
  assert.ok(!proxy.seen.some((request) => isFor("settle")(request)), "nothing was settled by the one who lost it");
});

test("outcomes are kept while the server is away", async (context) => {
  const proxy = await Proxy.open();
  const begun = promised();
  const finish = promised();
  start(context, {
    "js-25": async () => {
      begun.keep();
      await finish.promise;
      return "kept";
    },
  }, { behind: proxy, lease: 30 });
  const job = await client.enqueue("js-25", {});
  await begun.promise;
  await proxy.away();
  finish.keep();
  await new Promise((resolve) => setTimeout(resolve, 300));
  await proxy.back();
  assert.equal(await client.result(job, { timeout: 10 }), "kept");
  assert.equal((await client.get(job.id)).attempt, 1);
});

test("an answer that gets lost on its way loses no job, and settles none twice", async (context) => {
  const proxy = await Proxy.open();
  const deaf = new Set(["reserve", "settle", "report"]);
  proxy.judge = (request) => {
    const verb = [...deaf].find((name) => isFor(name)(request));
    if (verb === undefined || (verb === "reserve" && !armed)) return undefined;
    deaf.delete(verb);
    return "deaf";
  };
  let armed = false;
  let runs = 0;
  const { warnings } = start(context, {
    "js-26": async (_, job) => {
      runs += 1;
      await job.checkpoint({ run: runs });
      return runs;
    },
  }, { behind: proxy, lease: 30 });
  await eventually(() => proxy.seen.some(isFor("reserve")));
  armed = true;
  await proxy.cut(); // the poll under way breaks off; the next one is answered, and nobody hears it
  const job = await client.enqueue("js-26", {});
  assert.equal(await client.result(job, { timeout: 10 }), 1);
  assert.deepEqual([...deaf], [], "all three answers were lost");
  const settled = await eventually(() => proxy.seen.filter(isFor("settle")).length === 2 && proxy.seen.filter(isFor("settle")));
  assert.equal(settled[0].headers["tidewheel-request-id"], settled[1].headers["tidewheel-request-id"]);
  assert.equal((await client.get(job.id)).attempt, 1);
  assert.deepEqual(warnings.filter((warning) => warning.includes("taken from")), [], "and it knows that it was the one");
});

test("outcomes that gather while a batch is on its way make the next", async (context) => {
  const proxy = await Proxy.open();
  const go = promised();
  let running = 0;
  const warnings = [];
  const warn = (warning) => warnings.push(warning.name);
  process.on("warning", warn);
  context.after(() => process.off("warning", warn));
  start(context, {
    "js-27": async (_, { step, progress }) => {
      await Promise.all([step("one", () => 1), step("two", () => 2), progress(1)]);
      running += 1;
      await go.promise;
    },
  }, { concurrency: 50, behind: proxy });
  const jobs = await client.enqueueMany(Array.from({ length: 50 }, () => ({ task: "js-27", payload: {} })));
  await eventually(() => running === 50);
  go.keep();
  await Promise.all(jobs.map((job) => client.result(job, { timeout: 10 })));
  assert.ok(proxy.seen.filter(isFor("settle")).length <= 3);
  assert.deepEqual(warnings, [], "a hundred calls at a time are nothing to warn of");
});

test("a worker that is stopped lets its handlers finish, and takes no more", async (context) => {
  const begun = promised();
  const finish = promised();
  const { worker, ended } = start(context, {
    "js-28": async (_, job) => {
      begun.keep();
      await finish.promise;
      return job.shuttingDown;
    },
  });
  const job = await client.enqueue("js-28", {});
  await begun.promise;
  const stopped = worker.stop();
  const later = await client.enqueue("js-28", {});
  finish.keep();
  assert.equal(await client.result(job, { timeout: 10 }), true);
  await Promise.all([stopped, ended]);
  assert.equal((await client.get(later.id)).state, "pending");
  await client.delete(later.id);
});

test("after the grace, or at a second stop, jobs are given back and not counted", async (context) => {
  for (const stop of [(worker) => worker.stop({ grace: 0.05 }), (worker) => (void worker.stop(), worker.stop())]) {
    const begun = promised();
    const why = promised();
    const { worker, ended } = start(context, {
      "js-29": async (_, { signal }) => {
        begun.keep();
        why.keep(await aborted(signal));
        throw signal.reason;
      },
    });
    const job = await client.enqueue("js-29", {});
    await begun.promise;
    await stop(worker);
    await ended;
    assert.equal((await why.promise).reason, "shutting_down");
    const told = await client.get(job.id);
    assert.deepEqual([told.state, told.attempt, told.last_error], ["pending", 0, null]);
    await client.delete(job.id);
  }
});

test("stopping ends an idle worker at once, and no job is lost on the way", async (context) => {
  const proxy = await Proxy.open();
  const { worker } = start(context, { "js-30": () => "ran" }, { behind: proxy });
  await eventually(() => proxy.seen.some(isFor("reserve")));
  const before = performance.now();
  const made = client.enqueue("js-30", {});
  await worker.stop();
  assert.ok(performance.now() - before < 3000, "the poll was ended, and not waited for");
  const polls = proxy.seen.filter(isFor("reserve"));
  assert.equal(polls.at(-1).path, "/api/jobs/work/reserve?wait=0");
  assert.equal(polls.at(-1).headers["tidewheel-request-id"], polls.at(-2).headers["tidewheel-request-id"]);
  const job = await made;
  await eventually(async () => ["pending", "completed"].includes((await client.get(job.id)).state));
});

const PROGRAM = `
import { Client, Worker } from "tidewheel";
const client = new Client({ url: "${url}", token: "${token}" });
const worker = new Worker(client, {
  handlers: { "js-31": ({ obeys }, { signal }) => new Promise((_, reject) => {
    console.log("begun");
    if (obeys) signal.addEventListener("abort", () => reject(signal.reason));
  }) },
  handleSignals: true,
});
await worker.run();
console.log("ended");
`;

test("the first signal lets handlers finish, the second gives their jobs back", { skip: process.platform === "win32", timeout: 30_000 }, async () => {
  const jobs = await client.enqueueMany([true, false].map((obeys) => ({ task: "js-31", payload: { obeys } })));
  const options = { cwd: new URL(".", import.meta.url), stdio: ["ignore", "pipe", "inherit"] };
  const child = spawn(process.execPath, ["--input-type=module", "--eval", PROGRAM], options);
  let said = "";
  child.stdout.on("data", (chunk) => {
    said += chunk;
  });
  await eventually(() => said === "begun\nbegun\n");
  child.kill("SIGTERM");
  await new Promise((resolve) => setTimeout(resolve, 50));
  for (const job of jobs) assert.equal((await client.get(job.id)).state, "running", "it may finish");
  child.kill("SIGTERM");
  const [code] = await once(child, "exit");
  assert.deepEqual([code, said], [0, "begun\nbegun\nended\n"]);
  for (const job of jobs) {
    const told = await client.get(job.id);
    assert.deepEqual([told.state, told.attempt], ["pending", 0]);
    await client.delete(job.id);
  }
});

test("a poll that comes to the server after the word to stop waits for nothing", async (context) => {
  const topic = "js-38";
  const [finish, ended] = [promised(), promised()];
  let polls = 0;
  let late;
  // The second poll is on its way for so long that the request which ends it overtakes it.
  const slow = async (address, init) => {
    const wait = /reserve\?wait=(\d+)/.exec(address)?.[1];
    if (wait === "20" && ++polls === 2) {
      late = init.signal;
      await ended.promise;
    }
    const response = await fetch(address, init);
    if (wait === "0") ended.keep();
    return response;
  };
  const own = new Client({ url, token, fetch: slow });
  const worker = new Worker(own, { handlers: { [topic]: () => finish.promise }, concurrency: 2 });
  void worker.run();
  context.after(() => worker.stop({ grace: 0 }));
  await client.enqueue(topic, {});
  await eventually(() => late);
  const stopped = worker.stop();
  await eventually(() => late.aborted); // although a handler is at work
  finish.keep();
  await stopped;
});

test("an extension that nobody answers is asked for again in time", async (context) => {
  const topic = "js-39";
  const extended = promised();
  let asked = 0;
  const deaf = async (address, init) => {
    if (!String(address).endsWith("/extend")) return fetch(address, init);
    asked += 1;
    if (asked === 1) return new Promise((_, reject) => init.signal.addEventListener("abort", () => reject(init.signal.reason)));
    const response = await fetch(address, init);
    extended.keep();
    return response;
  };
  const own = new Client({ url, token, fetch: deaf });
  const worker = new Worker(own, { handlers: { [topic]: (_, { signal }) => Promise.race([extended.promise, aborted(signal)]) }, lease: 2, warn: () => undefined });
  void worker.run();
  context.after(() => worker.stop({ grace: 0 }));
  const job = await client.enqueue(topic, {});
  await client.result(job, { timeout: 10 });
  assert.equal((await client.get(job.id)).attempt, 1);
});
