/** The server that tests talk to. `pytest tests/sdk` starts it, and says where it is. */
import { Client } from "tidewheel";

export const url = needed("TIDEWHEEL_TEST_SERVER");
export const token = needed("TIDEWHEEL_TEST_KEY");
export const client = new Client({ url, token });

/** Any word that no other test has used. */
export function fresh(word = "word") {
  return `${word}-${crypto.randomUUID()}`;
}

/** All that is said until it ends. */
export async function collected(items) {
  const found = [];
  for await (const item of items) found.push(item);
  return found;
}

/** Resolves when `look` finds something; rejects when it has not for ten seconds. */
export async function eventually(look) {
  const until = performance.now() + 10_000;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (performance.now() > until) throw new Error(`not within ten seconds: ${look}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

function needed(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set: run these tests with pytest tests/sdk, which starts a server for them`);
  return value;
}
