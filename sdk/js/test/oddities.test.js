/** What handlers, loggers and callers do in plain JavaScript, that no compiler lets pass. */
import assert from "node:assert/strict";
import test from "node:test";
import { Client, RetryAfter, Worker } from "tidewheel";
import { granted, grants, pretended, settling } from "./pretend.js";
import { eventually } from "./server.js";

/** A worker that is given these jobs, how each was settled, and what the server was asked. */
async function worked(context, handler, jobs, options = {}) {
  const { settled, settle } = settling();
  const { give, reserve } = grants();
  const { client, seen } = pretended({ reserve, settle, steps: () => ({ held: true, steps: [] }) });
  const worker = new Worker(client, { handlers: { "made-up": handler }, ...options });
  const ended = worker.run();
  context.after(() => worker.stop({ grace: 0 }));
  for (const job of jobs) give(job);
  await eventually(() => settled.size === jobs.length);
  await worker.stop();
  await ended;
  return { seen, settled: jobs.map(({ id }) => settled.get(id)) };
}

/** Promises that nobody took care of, which end a process. */
function unhandled(context) {
  const found = [];
  const listen = (reason) => found.push(reason);
  process.on("unhandledRejection", listen);
  context.after(() => process.off("unhandledRejection", listen));
  return found;
}

test("a logger that fails costs nothing, and the console is told in its place", async (context) => {
  const failures = unhandled(context);
  const told = context.mock.method(console, "warn", () => undefined);
  for (const warn of [() => Promise.reject(new Error("closed")), () => { throw new Error("closed"); }]) {
    const jobs = [granted({ task: "unknown" }), granted()];
    const { settled } = await worked(context, () => "ran", jobs, { warn, lanes: [{ topic: "made-up" }] });
    assert.deepEqual(settled.map(({ outcome }) => outcome), ["release", "complete"]);
  }
  assert.deepEqual(failures, []);
  assert.deepEqual(told.mock.calls.map((call) => /has no handler here/.test(call.arguments[0])), [true, true]);
});

test("a delay that is no number ends no process", async (context) => {
  const failures = unhandled(context);
  const delays = [5n, Symbol("soon"), { valueOf: () => { throw new Error("no"); } }, "7", NaN];
  const jobs = delays.map((_, place) => granted({ payload: place }));
  const { settled } = await worked(context, (place) => {
    throw new RetryAfter(delays[place]);
  }, jobs);
  assert.deepEqual(failures, []);
  assert.deepEqual(settled.map(({ outcome, delay }) => [outcome, delay]), [
    ["retry", 5], ["retry", undefined], ["retry", undefined], ["retry", 7], ["retry", 0],
  ]);
});

test("what JSON has no word for is refused, and not saved as something else; nothing at all is null", async (context) => {
  const { seen, settled } = await worked(context, async (_, { checkpoint, step }) => {
    await assert.rejects(checkpoint(() => 1), { name: "TypeError", message: /the checkpoint is a function, .* nothing was saved/ });
    await assert.rejects(checkpoint(Symbol("odd")), { name: "TypeError" });
    await checkpoint(undefined);
    await assert.rejects(step("odd", () => () => 1), { name: "TypeError", message: /what step "odd" returned is a function/ });
    return [await step("odd", () => undefined)];
  }, [granted()]);
  assert.deepEqual(settled[0].result, [null]);
  const reports = seen.filter(({ word }) => word === "report").flatMap(({ body }) => body.reports);
  assert.deepEqual(reports.map(({ checkpoint, step }) => (step ?? { output: checkpoint }).output), [null, null]);
});

test("half a character gives way to the sign for one, wherever it is said", async (context) => {
  const odd = "a\ud800b \\ud800 😀 \udc00";
  const fine = "a\uFFFDb \\ud800 😀 \uFFFD";
  const { seen, settled } = await worked(context, async (_, { checkpoint, progress, step }) => {
    await progress(1, odd, odd);
    await checkpoint({ [odd]: odd });
    await assert.rejects(step(odd, () => 1), { name: "TypeError", message: /half a character in its name/ });
    assert.equal(await step("odd", () => odd), fine, "as a later run gets it");
    return odd;
  }, [granted()]);
  const reports = seen.filter(({ word }) => word === "report").flatMap(({ body }) => body.reports);
  const [{ progress }, { checkpoint }, { step }] = reports;
  assert.deepEqual([progress.message, progress.stage, checkpoint, step.output], [fine, fine, { [fine]: fine }, fine]);
  assert.equal(settled[0].result, fine);
});

test("large integers reach handlers exactly, and are given back exactly", async (context) => {
  const large = 9007199254740993n;
  const { seen, settled } = await worked(context, async (payload, { checkpoint, step }) => {
    await assert.rejects(checkpoint(2 ** 60), { name: "RangeError", message: /numbers are rounded/ });
    assert.equal(await step("large", () => payload), large);
    return payload === large ? payload : 2 ** 60;
  }, [granted({ payload: large })]);
  assert.equal(settled[0].result, large);
  const [{ step }] = seen.filter(({ word }) => word === "report").flatMap(({ body }) => body.reports);
  assert.equal(step.output, large);
});

test("handlers and graces that are none are refused at once, with what would do", async () => {
  const client = new Client({ url: "http://pretended" });
  const wrong = [["x", '"x"'], [null, "null"], [{}, "{}"], [{ topic: "mail" }, '{"topic":"mail"}'], [{ run: () => 1 }, "{}"], [7, "7"]];
  for (const [given, shown] of wrong) {
    const message = `the handler of "odd" is ${shown}; give a function, or { topic, run } with a topic's name and a function`;
    assert.throws(() => new Worker(client, { handlers: { odd: given } }), { name: "TypeError", message });
  }
  assert.throws(() => new Worker(client, { handlers: { fine: () => 1 }, grace: NaN }), { name: "RangeError", message: /grace is NaN/ });
  const worker = new Worker(client, { handlers: { fine: () => 1, none: undefined }, grace: Infinity });
  await assert.rejects(worker.stop({ grace: NaN }), { name: "RangeError", message: /grace is NaN/ });
  await worker.stop();
});
