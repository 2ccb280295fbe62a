/** From counts and minutes to lines of a chart. */
import type { Schema } from "$lib/api/client";
import { clock } from "$lib/clock.svelte";
import type { Sample } from "$lib/live.svelte";

export type Window = "live" | "1h" | "6h" | "24h";
type Minute = Schema["MinuteShape"];

export interface Span {
  seconds: number;
  /** what one point of the chart stands for */
  step: number;
  text: string;
  /** "in the last hour" */
  words: string;
}

export const spans: Record<Window, Span> = {
  live: { seconds: 300, step: 0, text: "Live", words: "the last five minutes" },
  "1h": { seconds: 3600, step: 60, text: "1 h", words: "the last hour" },
  "6h": { seconds: 6 * 3600, step: 180, text: "6 h", words: "the last six hours" },
  "24h": { seconds: 24 * 3600, step: 600, text: "24 h", words: "the last day" },
};

export interface Lines {
  times: number[];
  enqueued: (number | null)[];
  completed: (number | null)[];
  failed: (number | null)[];
}

const SMOOTHED = 4; // samples a rate is taken over: the stream tells topics one after the other
const NOW_SAMPLES = 6;
const MINUTE_SAMPLES = 31;

interface Rates {
  enqueued: number | null;
  completed: number | null;
  failed: number | null;
}

const everything = (one: Sample): number => one.pending + one.running + one.completed + one.failed + one.cancelled;

/** Jobs a second between two samples; null where counts fell, because finished jobs were pruned or requeued. */
function between(before: Sample, after: Sample): Rates {
  const seconds = Math.max(0.001, after.at - before.at);
  const rate = (change: number): number | null => (change < 0 ? null : change / seconds);
  return {
    enqueued: rate(everything(after) - everything(before)),
    completed: rate(after.completed - before.completed),
    failed: rate(after.failed - before.failed),
  };
}

/** Finished jobs a second at the moment; undefined before the stream has told enough. */
export function rateNow(samples: readonly Sample[]): number | undefined {
  const quick = finishedOver(samples, NOW_SAMPLES);
  // Where few jobs finish, ten seconds see one or none: the minute says more.
  return quick !== undefined && quick < 1 ? finishedOver(samples, MINUTE_SAMPLES) : quick;
}

function finishedOver(samples: readonly Sample[], count: number): number | undefined {
  const last = samples.at(-1);
  const first = samples.at(-count) ?? samples[0];
  if (!last || !first || last === first) return undefined;
  const { completed, failed } = between(first, last);
  return completed === null ? undefined : completed + (failed ?? 0);
}

/** The last minutes in jobs a second: as the stream told them, and before that the minutes the store has kept. */
export function liveLines(samples: readonly Sample[], minutes: readonly Minute[], from: number): Lines {
  const lines: Lines = { times: [], enqueued: [], completed: [], failed: [] };
  const now = clock.present() / 1000;
  const began = samples[0]?.at ?? now;
  const kept = byStart(minutes);
  for (let start = Math.floor(from / 60) * 60; start < began - 5; start += 60) {
    const minute = kept.get(start);
    const seconds = Math.min(60, Math.max(5, now - start)); // the last one may not be over
    lines.times.push(Math.min(Math.max(start + 30, from), began - 1)); // the first one may have begun before the chart
    lines.enqueued.push((minute?.enqueued ?? 0) / seconds);
    lines.completed.push((minute?.completed ?? 0) / seconds);
    lines.failed.push((minute?.failed ?? 0) / seconds);
  }
  for (let index = 1; index < samples.length; index++) {
    if (samples[index]!.at < from) continue;
    const rates = between(samples[Math.max(0, index - SMOOTHED)]!, samples[index]!);
    lines.times.push(samples[index]!.at);
    lines.enqueued.push(rates.enqueued);
    lines.completed.push(rates.completed);
    lines.failed.push(rates.failed);
  }
  return lines;
}

/** Minutes in jobs a minute, averaged over `step`, up to `end`. Minutes the store leaves out had nothing: zeros. */
export function minuteLines(minutes: readonly Minute[], { seconds, step }: Span, end: number): Lines {
  const lines: Lines = { times: [], enqueued: [], completed: [], failed: [] };
  const kept = byStart(minutes);
  for (let start = Math.ceil((end - seconds) / step) * step; start < end; start += step) {
    const sum = { enqueued: 0, completed: 0, failed: 0 };
    const over = Math.min(start + step, end); // the last step may not be; the minute at hand is left out
    for (let minute = start; minute < over; minute += 60) {
      const one = kept.get(minute);
      if (!one) continue;
      sum.enqueued += one.enqueued;
      sum.completed += one.completed;
      sum.failed += one.failed;
    }
    const share = 60 / (over - start);
    lines.times.push(start);
    lines.enqueued.push(sum.enqueued * share);
    lines.completed.push(sum.completed * share);
    lines.failed.push(sum.failed * share);
  }
  return lines;
}

/** What happened since then, in all. */
export function since(minutes: readonly Minute[], from: number): { enqueued: number; completed: number; failed: number; retried: number } {
  const sum = { enqueued: 0, completed: 0, failed: 0, retried: 0 };
  for (const minute of minutes) {
    if (Date.parse(minute.minute) / 1000 < from) continue;
    sum.enqueued += minute.enqueued;
    sum.completed += minute.completed;
    sum.failed += minute.failed;
    sum.retried += minute.retried;
  }
  return sum;
}

/** Finished jobs by minute, with zeros, for a sparkline of the last hour. */
export function finishedByMinute(minutes: readonly Minute[], now: number, parts = 30): number[] {
  const step = 3600 / parts;
  const end = Math.floor(now / 60) * 60; // the minute at hand is not over
  const sums = new Array<number>(parts).fill(0);
  for (const minute of minutes) {
    const index = parts - 1 - Math.floor((end - 60 - Date.parse(minute.minute) / 1000) / step);
    if (index >= 0 && index < parts) sums[index]! += minute.completed + minute.failed;
  }
  return sums;
}

function byStart(minutes: readonly Minute[]): Map<number, Minute> {
  return new Map(minutes.map((one) => [Date.parse(one.minute) / 1000, one]));
}
