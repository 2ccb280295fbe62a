/** How many of a worker's slots have a job, as the server counts them: by the jobs it holds, of which the rest is claimed ahead. */
import type { Schema } from "$lib/api/client";

export interface HeldSlots {
  busy: number;
  ahead: number;
}

/** From the jobs in sight, so that both agree; from the worker's figures where those are not all. */
export function slotsOf(worker: Schema["WorkerShape"], jobs: readonly Schema["JobSummary"][], partial: boolean): HeldSlots {
  if (worker.missing) return { busy: 0, ahead: 0 };
  if (partial) return { busy: worker.running, ahead: worker.claimed };
  return { busy: Math.min(jobs.length, worker.concurrency), ahead: Math.max(0, jobs.length - worker.concurrency) };
}
