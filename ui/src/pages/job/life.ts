/**
 * When a job waited and when it ran, as far as its record tells, in milliseconds since the epoch.
 *
 * A record forgets what was due when, but for the last time: between two attempts there is "waited", without a reason.
 */
import type { Schema } from "$lib/api/client";

export type Job = Schema["JobDetail"];
export type Attempt = Schema["AttemptShape"];

/** Whether an attempt was ended on request, which is no error of its own. */
export function wasStopped(error: { code: string } | undefined): boolean {
  return error?.code === "job_canceled";
}

export interface Span {
  kind: "delayed" | "waited" | "ran";
  from: number;
  to: number;
  /** of a run: which attempt, where, and how it ended */
  attempt?: number;
  worker?: string | null;
  ended?: "well" | "badly" | "stopped" | "open";
}

export interface Life {
  from: number;
  to: number;
  spans: readonly Span[];
  waitedFirst: number;
  waitedLater: number;
  delayed: number;
  ran: number;
  total: number;
}

const moment = (text: string): number => Date.parse(text);

export function lifeOf(job: Job, now: number): Life {
  const created = moment(job.created_at);
  const runs = runsOf(job, now);
  const due = moment(job.run_at);
  // Whose run_at is still that of its first run: nothing has been tried before.
  const first = job.attempts.length === 0 && due > created ? due : created;
  const spans: Span[] = [];
  let at = created;
  let waitedFirst = 0;
  let waitedLater = 0;
  const wait = (until: number, before: boolean): void => {
    const dueAt = before ? first : job.state === "pending" ? due : at;
    const delayedTo = Math.min(until, Math.max(at, dueAt));
    if (delayedTo > at) spans.push({ kind: "delayed", from: at, to: delayedTo });
    if (until > delayedTo) spans.push({ kind: "waited", from: delayedTo, to: until });
    if (before) waitedFirst += until - at;
    else waitedLater += until - at;
    at = Math.max(at, until);
  };
  runs.forEach((run, index) => {
    const from = Math.max(at, run.from);
    if (from > at) wait(from, index === 0);
    const span = { ...run, from, to: Math.max(from, run.to) };
    spans.push(span);
    at = span.to;
  });
  const end = job.finished_at !== null ? Math.max(at, moment(job.finished_at)) : job.state === "pending" ? Math.max(at, now, due) : Math.max(at, now);
  if (end > at) wait(end, runs.length === 0);
  const known = job.finished_at !== null ? end : Math.max(created, Math.min(end, now));
  const sum = (kind: Span["kind"]): number => spans.reduce((total, span) => (span.kind === kind ? total + Math.max(0, Math.min(span.to, known) - span.from) : total), 0);
  return {
    from: created,
    to: Math.max(end, created + 1),
    spans,
    waitedFirst: Math.min(waitedFirst, known - created),
    waitedLater: Math.min(waitedLater, known - created),
    delayed: sum("delayed"),
    ran: sum("ran"),
    total: known - created,
  };
}

/** Attempts that errored, and the run the record itself has, unless that is the last of those. */
function runsOf(job: Job, now: number): Span[] {
  const runs: Span[] = [];
  for (const attempt of job.attempts) {
    if (attempt.started_at === null) continue; // its worker vanished before it had begun
    runs.push({ kind: "ran", from: moment(attempt.started_at), to: moment(attempt.ended_at), attempt: attempt.attempt, worker: attempt.worker, ended: wasStopped(attempt.error) ? "stopped" : "badly" });
  }
  const last = job.attempts.at(-1);
  if (job.started_at !== null && (last?.started_at === null || last?.started_at === undefined || moment(last.started_at) !== moment(job.started_at))) {
    const open = job.state === "running";
    const from = moment(job.started_at);
    const to = job.finished_at !== null ? moment(job.finished_at) : open ? Math.max(now, from) : null;
    if (to !== null) runs.push({ kind: "ran", from, to, attempt: job.attempt, worker: job.worker, ended: open ? "open" : job.state === "completed" ? "well" : job.state === "cancelled" ? "stopped" : "badly" });
  }
  return runs;
}
