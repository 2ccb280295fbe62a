/** Somebody else's function that is told of errors, such that its own harm nobody. */
import { textOfThrown } from "./outcomes.js";
import type { ReservedJob } from "./protocol.js";

type Listener = (error: unknown, job: ReservedJob) => void;

/** Calls the listener, where there is one. What it throws, or rejects with if it is async, is warned of. */
export function guarded(listener: Listener | undefined, warn: (message: string) => void): Listener {
  return (error, job) => {
    const failed = (thrown: unknown): void => warn(`onError failed for job ${job.id}: ${textOfThrown(thrown)}`);
    try {
      void Promise.resolve(listener?.(error, job)).catch(failed);
    } catch (thrown) {
      failed(thrown);
    }
  };
}
