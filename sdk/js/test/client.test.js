import assert from "node:assert/strict";
import test from "node:test";
import * as tidewheel from "tidewheel";
import { Client } from "tidewheel";
import { client, collected, fresh, token, url } from "./server.js";

test("a job is made, waited for, and gives back what its handler returned", async () => {
  const job = await client.enqueue("add", { a: 2, b: 3 });
  assert.equal(job.task, "add");
  assert.equal(job.duplicate, false);
  assert.equal(await client.result(job, { timeout: 10 }), 5);
  assert.equal(await client.result(job.id), 5, "a job that has ended answers at once, by its id as well");
  const told = await client.get(job.id);
  assert.deepEqual([told.state, told.payload, told.result], ["completed", { a: 2, b: 3 }, 5]);
});

test("a name that can be no topic is that of a task", async () => {
  await assert.rejects(client.enqueue("no.such.task", {}), { name: "InvalidInput", code: "handler_not_found", status: 422 });
});

test("the options of a job go along", async () => {
  const key = fresh("key");
  const run_at = new Date(Date.now() + 3_600_000);
  const job = await client.enqueue("add", { a: 1 }, { key, run_at, priority: 7, max_attempts: 9, correlation_id: "one" });
  const again = await client.enqueue("add", { a: 1 }, { key });
  assert.deepEqual([again.id, again.duplicate], [job.id, true]);
  const told = await client.get(job.id);
  assert.deepEqual([told.priority, told.max_attempts, told.correlation_id, told.key], [7, 9, "one", key]);
  assert.equal(Date.parse(told.run_at), run_at.getTime());
  assert.equal(told.shown_state, "delayed");
  await client.cancel(job.id);
});

test("a job of a task can be routed to another topic", async () => {
  const job = await client.enqueue("add", { a: 1 }, { topic: "js-0" });
  assert.deepEqual([job.topic, job.task], ["js-0", "add"]);
  await client.delete(job.id);
});

test("bytes travel as they are", async () => {
  const bytes = Uint8Array.from({ length: 40_000 }, (_, place) => place % 256);
  assert.equal(await client.result(await client.enqueue("measure", bytes), { timeout: 10 }), bytes.length);
  const job = await client.enqueue("bytes", bytes);
  const { payload, format } = await client.get(job.id);
  assert.equal(format, "bytes");
  assert.deepEqual(tidewheel.fromBase64(payload), bytes);
});

test("integers of 64 bits are kept exactly, and a number that may be rounded is refused", async () => {
  const job = await client.enqueue("add", { a: 9007199254740993n, b: 1 });
  assert.equal(await client.result(job, { timeout: 10 }), 9007199254740994n);
  assert.deepEqual((await client.get(job.id)).payload, { a: 9007199254740993n, b: 1 });
  const edges = { text: "9007199254740993 \" 12345678901234567890", most: 2n ** 63n - 1n, least: -(2n ** 63n), huge: 1e300, safe: 2 ** 53 - 1 };
  const kept = await client.enqueue("js-0", edges);
  assert.deepEqual((await client.get(kept.id)).payload, edges);
  await client.delete(kept.id);
  for (const a of [2 ** 53, -(2 ** 60), 2n ** 63n]) {
    await assert.rejects(client.enqueue("add", { a }), { name: "RangeError", message: /send (a bigint|it as text)/ });
  }
});

test("a job that fails is thrown, with why", async () => {
  const job = await client.enqueue("refuse", { reason: "not today" });
  await assert.rejects(client.result(job, { timeout: 10 }), (error) => {
    assert.ok(error instanceof tidewheel.JobFailed && error instanceof tidewheel.TidewheelError);
    assert.deepEqual([error.name, error.code, error.jobId], ["JobFailed", "job_failed", job.id]);
    assert.deepEqual([error.error.code, error.error.message], ["refused", "not today"]);
    return true;
  });
});

test("a job that is cancelled is thrown, and one that takes too long", async () => {
  const job = await client.enqueue("js-1", {});
  await assert.rejects(client.result(job, { timeout: 0.1 }), { name: "ResultTimeout", jobId: job.id });
  const waiting = assert.rejects(client.result(job), { name: "JobCancelled", jobId: job.id });
  assert.deepEqual(await client.cancel(job.id), { id: job.id, action: "cancel", requested: false });
  await waiting;
});

test("waiting ends at once when it is aborted", async () => {
  const job = await client.enqueue("js-1", {});
  const controller = new AbortController();
  const waiting = client.result(job, { signal: controller.signal });
  setTimeout(() => controller.abort(new Error("never mind")), 20);
  await assert.rejects(waiting, { message: "never mind" });
  await assert.rejects(client.stats({}, { signal: controller.signal }), { message: "never mind" });
  await assert.rejects(client.enqueue("add", { a: 1 }, { signal: controller.signal }), { message: "never mind" });
  await client.delete(job.id);
});

test("one signal is enough for many calls", async (context) => {
  const warnings = [];
  const warn = (warning) => warnings.push(warning.name);
  process.on("warning", warn);
  context.after(() => process.off("warning", warn));
  const { signal } = new AbortController();
  await Promise.all(Array.from({ length: 30 }, () => client.stats({}, { signal })));
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(warnings, [], "Node warns of more than ten listeners");
});

test("many jobs are made together, all of them or none, and read back page by page", async () => {
  const correlation_id = fresh("many");
  const jobs = Array.from({ length: 450 }, (_, n) => ({ task: "pages", payload: { n }, correlation_id }));
  const made = await client.enqueueMany(jobs);
  const read = await collected(client.each({ topic: "pages", correlation_id }));
  assert.deepEqual(read.map((job) => job.id), made.map((job) => job.id).reverse(), "newest first");
  const page = await client.list({ correlation_id, limit: 7 });
  assert.deepEqual([page.items.length, page.total], [7, 450]);
  const bad = [{ task: "add", payload: { a: 1 } }, { task: "add", payload: { a: "one" } }];
  await assert.rejects(client.enqueueMany(bad), (error) => {
    assert.ok(error instanceof tidewheel.InvalidInput && error instanceof tidewheel.ProblemError);
    assert.equal(error.errors[0].pointer, "#/jobs/1/payload/a");
    return true;
  });
});

test("jobs are requeued, cancelled and deleted, or it is said why not", async () => {
  const job = await client.enqueue("js-2", { a: 1 });
  await assert.rejects(client.requeue(job.id), { name: "WrongState", code: "wrong_state", status: 409 });
  await client.cancel(job.id);
  assert.equal((await client.requeue(job.id)).action, "requeue");
  assert.equal((await client.get(job.id)).state, "pending");
  assert.equal((await client.delete(job.id)).action, "delete");
  await assert.rejects(client.get(job.id), { name: "NotFound", code: "job_not_found", status: 404 });
});

test("topics are listed, paused, resumed and kicked", async () => {
  const job = await client.enqueue("paused", {});
  assert.deepEqual(await client.topics.pause("paused", { seconds: 60 }), { topic: "paused", action: "pause" });
  const found = async () => (await client.topics.list()).items.find((topic) => topic.topic === "paused");
  assert.ok((await found()).paused_until);
  await client.topics.resume("paused");
  assert.equal((await found()).paused_until, null);
  assert.deepEqual(await client.topics.kick("paused", { count: 10 }), { topic: "paused", kicked: 0 });
  await client.delete(job.id);
});

test("statistics, tasks and workers are told", async () => {
  const stats = await client.stats({ window: 600 });
  assert.equal(stats.window_seconds, 600);
  assert.equal(typeof stats.pending, "number");
  const tasks = await client.tasks();
  assert.deepEqual(tasks.find((task) => task.name === "add").payload_schema.required, ["a"]);
  assert.ok((await client.workers()).length >= 1);
});

test("who may not is told so, in one tree of errors", async () => {
  const stranger = new Client({ url, token: "tw_nobody" });
  await assert.rejects(stranger.stats(), (error) => {
    assert.ok(error instanceof tidewheel.NotAuthenticated && error instanceof tidewheel.ProblemError);
    assert.deepEqual([error.status, error.code], [401, "not_authenticated"]);
    assert.equal(error.problem.instance, "/api/jobs/stats");
    return true;
  });
  await assert.rejects(client.list({ where: "state:" }), { name: "InvalidInput" });
});

test("a token can be asked for whenever it is needed", async () => {
  let asked = 0;
  const renewing = new Client({ url: new URL(url), token: async () => ((asked += 1), token) });
  await renewing.stats();
  await renewing.stats();
  assert.equal(asked, 2);
});

test("options that cannot work are refused at once", () => {
  assert.throws(() => new Client({ url: "ftp://somewhere" }), /http:/);
  assert.throws(() => new Client({ url, timeout: 0 }), /timeout is 0/);
  assert.throws(() => new Client({ url, retries: -1 }), /retries is -1/);
});
