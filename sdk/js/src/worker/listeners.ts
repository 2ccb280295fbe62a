/** Somebody else's functions that are told what happens, such that their own errors harm nobody. */
import { textOfThrown } from "./outcomes.js";
import type { ReservedJob } from "./protocol.js";

type OnError = (error: unknown, job: ReservedJob) => void;
type Warn = (message: string) => void;

/** Calls the listener, where there is one. What it throws, or rejects with if it is async, is warned of. */
export function guarded(listener: OnError | undefined, warn: Warn): OnError {
  return (error, job) => {
    const failed = (thrown: unknown): void => warn(`onError failed for job ${job.id}: ${textOfThrown(thrown)}`);
    attempt(() => listener?.(error, job), failed);
  };
}

/** The same `warn`. One that fails, a logger that was closed perhaps, gives way to the console. */
export function guardedWarn(warn: Warn): Warn {
  return (message) => attempt(() => warn(message), () => console.warn(message));
}

function attempt(call: () => unknown, failed: (thrown: unknown) => void): void {
  try {
    void Promise.resolve(call()).catch(failed);
  } catch (thrown) {
    failed(thrown);
  }
}
