/** What lanes did in a window, added up by topic or by task, in buckets that a sparkline can show. */
import type { Schema } from "./api/client";

type Lane = Schema["LaneShape"];

export interface Activity {
  due: number;
  delayed: number;
  running: number;
  failedNow: number;
  /** in the window */
  enqueued: number;
  completed: number;
  failed: number;
  retried: number;
  /** completed jobs, oldest first */
  buckets: number[];
  /** failed jobs, in the same buckets */
  failedBuckets: number[];
}

export const BUCKETS = 30;

export const windows = [
  { value: "15m", text: "15 min", seconds: 900 },
  { value: "1h", text: "1 h", seconds: 3600 },
  { value: "6h", text: "6 h", seconds: 21_600 },
  { value: "24h", text: "24 h", seconds: 86_400 },
] as const;
export type Window = (typeof windows)[number];

/** The window the address bar asks for; an hour unless it says. */
export function windowOf(text: string | null): Window {
  return windows.find((one) => one.value === text) ?? windows[1];
}

export function nothing(): Activity {
  const empty = () => Array<number>(BUCKETS).fill(0);
  return { due: 0, delayed: 0, running: 0, failedNow: 0, enqueued: 0, completed: 0, failed: 0, retried: 0, buckets: empty(), failedBuckets: empty() };
}

/** Lanes added up by whatever `by` says of each, up to `now` in milliseconds. */
export function addUp(lanes: readonly Lane[], by: (lane: Lane) => string, windowSeconds: number, now: number): Map<string, Activity> {
  const sums = new Map<string, Activity>();
  const first = now - windowSeconds * 1000;
  const width = (windowSeconds * 1000) / BUCKETS;
  for (const lane of lanes) {
    const key = by(lane);
    let sum = sums.get(key);
    if (!sum) sums.set(key, (sum = nothing()));
    sum.due += lane.due;
    sum.delayed += lane.pending - lane.due;
    sum.running += lane.running;
    sum.failedNow += lane.failed;
    sum.enqueued += lane.enqueued_in_window ?? 0;
    sum.completed += lane.completed_in_window ?? 0;
    sum.failed += lane.failed_in_window ?? 0;
    sum.retried += lane.retried_in_window ?? 0;
    for (const minute of lane.series) {
      const at = Math.min(BUCKETS - 1, Math.max(0, Math.floor((Date.parse(minute.minute) - first) / width)));
      sum.buckets[at]! += minute.completed;
      sum.failedBuckets[at]! += minute.failed;
    }
  }
  return sums;
}

/** The success rate, as the server defines it: completed among completed and failed in the window; null where nothing ended. */
export function successOf(activity: Activity): number | null {
  const ended = activity.completed + activity.failed;
  return ended === 0 ? null : activity.completed / ended;
}
