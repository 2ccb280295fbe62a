/** A job's timeline as it is shown: an attempt is one row, with what happened in it. */
import type { JobEntry } from "$lib/live.svelte";
import type { Attempt, Job } from "./life";
import type { SeenEntry } from "./watched.svelte";

export interface AttemptRow {
  kind: "attempt";
  id: string;
  attempt: number | undefined;
  worker: string | undefined;
  claimed?: string;
  started?: string;
  ended?: string;
  seconds?: number;
  outcome: "open" | "errored" | "over";
  error?: Attempt["error"];
  steps: JobEntry[];
}
export interface HappeningRow {
  kind: "happening";
  id: string;
  entry: SeenEntry;
}
/** Attempts nobody kept: a record has the first ten and the last ten. */
export interface MissingRow {
  kind: "missing";
  id: string;
  from: number;
  to: number;
}
export type Row = AttemptRow | HappeningRow | MissingRow;

export function rowsOf(job: Job, seen: readonly SeenEntry[]): Row[] {
  const rows: Row[] = [];
  let open: AttemptRow | null = null;

  const begin = (entry: JobEntry): AttemptRow => {
    const last = rows.findLast((row) => row.kind === "attempt");
    if (entry.attempt !== undefined && last?.attempt !== undefined && entry.attempt > last.attempt + 1) {
      rows.push({ kind: "missing", id: `missing-${entry.id}`, from: last.attempt + 1, to: entry.attempt - 1 });
    }
    const row: AttemptRow = { kind: "attempt", id: entry.id, attempt: entry.attempt, worker: entry.worker, outcome: "open", steps: [] };
    rows.push(row);
    return row;
  };
  const current = (entry: JobEntry): AttemptRow => (open !== null && (entry.attempt === undefined || open.attempt === undefined || open.attempt === entry.attempt) ? open : begin(entry));

  for (const entry of merged(job.timeline, seen)) {
    switch (entry.what) {
      case "claimed":
        open = begin(entry);
        open.claimed = entry.at;
        break;
      case "started":
        if (open?.started !== undefined) open = null;
        open = current(entry);
        open.started = entry.at;
        open.worker = entry.worker;
        break;
      case "step":
        open = current(entry);
        open.steps.push(entry);
        break;
      case "progress": // the latest only, and that has a place of its own
        break;
      case "errored":
        open = current(entry);
        Object.assign(open, { ended: entry.at, seconds: entry.seconds, outcome: "errored", error: errorOf(job, entry) });
        open = null;
        break;
      case "completed":
      case "failed":
      case "cancelled":
        if (open !== null) Object.assign(open, { ended: entry.at, seconds: entry.seconds, outcome: "over" });
        open = null;
        rows.push({ kind: "happening", id: entry.id, entry });
        break;
      default:
        rows.push({ kind: "happening", id: entry.id, entry });
    }
  }
  return rows;
}

/** The whole error, which is with the attempt; of one that is not kept any more, what the entry tells. */
function errorOf(job: Job, entry: JobEntry): Attempt["error"] | undefined {
  const kept = job.attempts.find((one) => one.attempt === entry.attempt && Date.parse(one.ended_at) === Date.parse(entry.at ?? ""));
  return kept?.error ?? (entry.error && { ...entry.error, retryable: true, details: null, traceback: null });
}

/** What the record tells and what we saw, in order; what has no time stays behind what it followed. */
function merged(told: readonly JobEntry[], seen: readonly SeenEntry[]): SeenEntry[] {
  const known = new Set(told.map((entry) => entry.id));
  const extra = seen.filter((entry) => !known.has(entry.id));
  const times = new Map(seen.map((entry) => [entry.id, entry.seen]));
  let moment = 0;
  const timed = told.map((entry) => {
    moment = entry.at ? Date.parse(entry.at) : moment;
    return { entry: { ...entry, seen: times.get(entry.id) } as SeenEntry, moment };
  });
  for (const entry of extra) timed.push({ entry, moment: entry.at ? Date.parse(entry.at) : (entry.seen ?? 0) });
  return timed.sort((one, other) => one.moment - other.moment).map(({ entry }) => entry);
}
