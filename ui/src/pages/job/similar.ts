/** A filter for failures like that of a job: its lane, and what the error begins with, which is the same for all. */
import { term } from "$lib/filter/writing";
import type { Job } from "./life";

export function similarFailures(job: Job): string {
  // "ConnectionError: host 10.0.0.7 …": the name is what others have, too. An error with a code of its own has that.
  const kind = /^[\w.]+:/.exec(job.error?.message ?? "")?.[0];
  return [term("topic", job.topic), term("task", job.task), term("error", `${job.error?.code}: ${kind ?? ""}`.trim())].join(" ");
}
