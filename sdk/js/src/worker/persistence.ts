/** Trying until it works: what a worker has to say is worth keeping while the server is away. */
import { InvalidInput, ProblemError } from "../errors.js";
import { pauseBefore } from "../transport.js";
import { sleep } from "../waiting.js";

/** While the server is away it is tried at least this often, in seconds: leases are running out. */
const LONGEST_PAUSE = 1;

/** What proxies and filters say to requests that they do not let through, for what they are. */
const TURNED_AWAY = new Set([400, 403, 406, 422]);

/** The server is there, perhaps, and something in front of it does not let this through. */
export function isTurnedAway(error: unknown): boolean {
  return error instanceof ProblemError && error.problem === undefined && TURNED_AWAY.has(error.status);
}

export function isRefused(error: unknown): boolean {
  return error instanceof InvalidInput;
}

/** The answer, however long it takes; what is `final` is thrown at once, and once `over` aborts what went wrong last. */
export async function persist<Answer>(ask: () => Promise<Answer>, over: AbortSignal, final = isRefused): Promise<Answer> {
  let last: unknown;
  for (let failures = 1; ; failures += 1) {
    try {
      return await ask();
    } catch (error) {
      if (final(error)) throw error;
      if (!over.aborted) last = error; // otherwise it is the end, and not what led to it
      await sleep(pauseBefore(error, failures, LONGEST_PAUSE), over).catch((ended: unknown) => {
        throw last ?? ended;
      });
    }
  }
}
