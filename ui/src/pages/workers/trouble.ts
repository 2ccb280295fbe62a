/** What is wrong with a worker, in figures. */
import type { Schema } from "$lib/api/client";

const SLOW_SECONDS = 0.2;
const BAD_SECONDS = 1;

/** How its event loop does: above `slow` handlers are noticed late, above `bad` leases are in danger. */
export function lagging(worker: Schema["WorkerShape"]): "fine" | "slow" | "bad" {
  if (worker.missing || worker.loop_lag_seconds < SLOW_SECONDS) return "fine";
  return worker.loop_lag_seconds < BAD_SECONDS ? "slow" : "bad";
}

/** The version alone: workers elsewhere say more, what they are written in and that they come over HTTP. */
export function release(version: string): string {
  return version.split(/[ ,]/)[0] ?? version;
}

/** The version most workers have, or null where all have the same. */
export function usualVersion(workers: readonly Schema["WorkerShape"][]): string | null {
  const counts = new Map<string, number>();
  for (const worker of workers) {
    const version = release(worker.version);
    counts.set(version, (counts.get(version) ?? 0) + 1);
  }
  if (counts.size < 2) return null;
  return [...counts].sort(([one, most], [other, count]) => count - most || (one < other ? 1 : -1))[0]![0];
}
