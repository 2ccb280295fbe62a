/** Workers behind proxies that answer in the server's place. */
import assert from "node:assert/strict";
import test from "node:test";
import { Worker } from "windlass";
import { granted, idle, page, pretended } from "./pretend.js";
import { Proxy } from "./proxy.js";
import { client, token } from "./server.js";
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

test("a worker that finds no server at first ends with the reason", async () => {
  const run = (answers, options) => new Worker(pretended(answers, options).client, { handlers: { "made-up": () => 0 } }).run();
  await assert.rejects(run({ reserve: () => page(404) }), { name: "NotFound", code: "not_ours" });
  await assert.rejects(run({}, { token: () => Promise.reject(new Error("nobody makes tokens")) }), /nobody makes tokens/);
});
