/** Trying until it works: what a worker has to say is worth keeping while the server is away. */
import { InvalidInput } from "../errors.js";
import { pauseBefore } from "../transport.js";
import { sleep } from "../waiting.js";

/** While the server is away it is tried at least this often, in seconds: leases are running out. */
const LONGEST_PAUSE = 1;

/** The answer, however long it takes; a refusal is thrown at once, and anything once `over` aborts. */
export async function persist<Answer>(ask: () => Promise<Answer>, over: AbortSignal): Promise<Answer> {
  for (let failures = 1; ; failures += 1) {
    try {
      return await ask();
    } catch (error) {
      if (error instanceof InvalidInput || over.aborted) throw error;
      await sleep(pauseBefore(error, failures, LONGEST_PAUSE), over);
    }
  }
}
