/** Jobs that this one runs after, and what that means for it. */
import { plural } from "$lib/words";
import type { Job } from "./life";

export type Relative = Job["after"][number];

/** waits for 2 of 3 jobs */
export function waitsFor(job: Job): string {
  const waiting = job.after.filter((one) => one.waits).length;
  if (waiting === 0) return "waits for other jobs"; // that was read a moment ago
  return waiting === job.after.length ? `waits for ${plural(waiting, "other job")}` : `waits for ${waiting} of ${plural(job.after.length, "job")}`;
}

/** Those whose end stopped it. */
export function culprits(job: Job): Relative[] {
  return job.after.filter((one) => one.state === "failed" || one.state === "cancelled" || one.state === null);
}
