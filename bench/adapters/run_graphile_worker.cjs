// graphile-worker. The same protocol as talk.py, in JavaScript; modules come from NODE_PATH.
"use strict";
const fs = require("node:fs");
const readline = require("node:readline");
const { Logger, makeWorkerUtils, run } = require("graphile-worker");
const { Pool } = require("pg");

const MOST_TIMES = 200000;
const tally = { ran: 0, first: 0, last: 0, waits: [], failed: new Set(), pause: 0, flaky: false };
const quiet = new Logger(() => () => {});
const now = () => Number(process.hrtime.bigint());
const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const padding = (bytes) => "y".repeat(Math.max(1, bytes - '{"x":"","number":10000,"called":0}'.length));
let pool, utils, options, url;

function note({ number, called }) {
  const time = now();
  if (tally.flaky && number % 10 === 0 && !tally.failed.has(number)) {
    tally.failed.add(number);
    throw new Error("failed once");
  }
  if (!tally.ran) tally.first = time;
  tally.ran += 1;
  tally.last = time;
  if (called) tally.waits.push(time - called);
}

async function job(payload) {
  note(payload);
  if (tally.pause) await sleep(tally.pause);
}

function cpuSeconds() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

function workerPreset(concurrency) {
  const worker = { connectionString: url, concurrentJobs: concurrency, logger: quiet };
  if (!options.best) return { worker };
  return {
    worker: {
      ...worker,
      maxPoolSize: options.pool,
      localQueue: { size: options.prefetch },
      completeJobBatchDelay: options.batch_delay,
      failJobBatchDelay: options.batch_delay,
    },
  };
}

const commands = {
  async open(message) {
    ({ url, options } = message);
    tally.pause = options.kind === "pause" ? 1 : 0;
    tally.flaky = options.kind === "flaky";
    pool = new Pool({ connectionString: url, max: options.pool });
    utils = await makeWorkerUtils({ pgPool: pool, logger: quiet });
    return { versions: { node: process.version } };
  },
  async setup() {
    await utils.migrate();
    return {};
  },
  async fill({ jobs, payload }) {
    const x = padding(payload);
    const began = now();
    for (let start = 0; start < jobs; start += 1000) {
      const specs = [];
      for (let number = start; number < Math.min(start + 1000, jobs); number++) {
        specs.push({ identifier: "job", payload: { x, number, called: 0 } });
      }
      await utils.addJobs(specs);
    }
    return { jobs, seconds: (now() - began) / 1e9 };
  },
  async enqueue({ callers, seconds, payload }) {
    const x = padding(payload);
    const times = [];
    let jobs = 0;
    const began = now();
    const deadline = began + seconds * 1e9;
    const cpu = cpuSeconds();
    const caller = async () => {
      for (let called = now(); called < deadline; called = now()) {
        jobs += 1;
        await utils.addJob("job", { x, number: jobs, called: 0 });
        if (times.length < MOST_TIMES) times.push((now() - called) / 1e9);
      }
    };
    await Promise.all(Array.from({ length: callers }, caller));
    return { jobs, seconds: (now() - began) / 1e9, cpu_seconds: cpuSeconds() - cpu, times };
  },
  async stamp({ number, gap }) {
    for (let index = 1; index <= number; index++) {
      await utils.addJob("job", { x: padding(100), number: index, called: now() });
      await sleep(gap * 1000);
    }
    return { jobs: number };
  },
  async work({ concurrency }) {
    const runner = await run({ preset: workerPreset(concurrency), taskList: { job } });
    runner.promise.catch((error) => say({ error: String(error.stack) }));
    return {};
  },
  async left() {
    const { rows } = await pool.query("SELECT count(*)::int AS number FROM graphile_worker._private_jobs");
    return { unfinished: rows[0].number, completed: null };
  },
  async count() {
    return {
      ran: tally.ran,
      first_ns: tally.first,
      last_ns: tally.last,
      cpu_seconds: cpuSeconds(),
      rss_megabytes: process.memoryUsage.rss() / 1e6,
    };
  },
  async waits() {
    return { seconds: tally.waits.map((wait) => wait / 1e9) };
  },
};

function say(message) {
  fs.writeSync(1, JSON.stringify(message) + "\n");
}

const lines = readline.createInterface({ input: process.stdin });
lines.on("line", async (line) => {
  const message = JSON.parse(line);
  try {
    say(await commands[message.do](message));
  } catch (error) {
    say({ error: String(error.stack) });
  }
});
lines.on("close", () => process.exit(0)); // the harness is gone, and so are we
