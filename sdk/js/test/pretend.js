/** A server that a test makes up, for what a real one does not do when it is wanted. */
import { Client } from "tidewheel";
import { readJson, writeJson } from "../dist/json.js";

const all = (items) => items.map(() => true);

/** What a server says to workers when all is well and there are no jobs. */
const WELL = {
  reserve: idle,
  start: ({ leases }) => ({ held: all(leases) }),
  extend: ({ leases }) => ({ held: all(leases), cancel_requested: leases.map(() => false) }),
  cancellations: ({ leases }) => ({ cancel_requested: leases.map(() => false) }),
  settle: ({ settlements }) => ({ accepted: all(settlements) }),
  report: ({ reports }) => ({ held: all(reports) }),
  time: () => ({ now: new Date().toISOString() }),
};

/**
 * A client whose server answers as `answers` has it, by the last word of the path, and all that it was asked. An answer is
 * JSON, or a whole Response.
 */
export function pretended(answers, options = {}) {
  const seen = [];
  const fetch = async (address, init) => {
    const { pathname, search } = new URL(address);
    const word = pathname.split("/").at(-1);
    const body = init.body === undefined ? undefined : readJson(init.body);
    seen.push({ word, address, body, headers: init.headers });
    const said = await (answers[word] ?? WELL[word] ?? (() => ({})))(body, init, search);
    return said instanceof Response ? said : new Response(writeJson(said));
  };
  return { seen, client: new Client({ url: "http://pretended", token: "secret", fetch, ...options }) };
}

/** No answer, until nobody waits for it any more. */
export function silence({ signal }) {
  return new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener("abort", () => reject(signal.reason));
  });
}

/** What a poll is told when there is nothing to do. */
export function idle(_, init, search) {
  return search === "?wait=0" ? { jobs: [] } : silence(init);
}

/** A page of somebody's who is not the server. */
export function page(status, headers = {}) {
  return new Response("<html>", { status, headers: { "Content-Type": "text/html", ...headers } });
}

/** The server's own word that it will not. */
export function refusal(status, code = "refused") {
  return Response.json({ code, detail: "no" }, { status, headers: { "Content-Type": "application/problem+json" } });
}

/** A settle that remembers what it was told of whom. */
export function settling() {
  const settled = new Map();
  const settle = ({ settlements }) => {
    for (const { id, ...rest } of settlements) settled.set(id, rest);
    return { accepted: all(settlements) };
  };
  return { settled, settle };
}

/** Jobs for the polls of workers, one for each as they are given. */
export function grants() {
  const given = [];
  let wake = () => undefined;
  return {
    give(job) {
      given.push(job);
      wake();
    },
    async reserve(_, init, search) {
      if (given.length === 0 && search !== "?wait=0") await Promise.race([silence(init), new Promise((resolve) => (wake = resolve))]);
      return { jobs: given.splice(0, 1) };
    },
  };
}

/** A job as it is granted. */
export function granted(more = {}) {
  const id = crypto.randomUUID();
  const who = { id, fence: 1, topic: "made-up", task: "", tenant: "", key: null, correlation_id: null, headers: {} };
  const how = { priority: 0, attempt: 1, max_attempts: 3, timeout: null, retry: null, losses: 0 };
  return { ...who, ...how, payload: {}, format: "json", lease_seconds: 30, lease_left: 30, ...more };
}
