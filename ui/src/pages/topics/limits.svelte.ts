/** Limits of topics: as people say them, how much of them is used, and what one does to them. */
import { answer, api, problemText, type Schema } from "$lib/api/client";
import { ask } from "$lib/asking.svelte";
import { toasts } from "$lib/toasts.svelte";
import { duration, number, plural } from "$lib/words";

export type Limits = Schema["TopicLimitsShape"];
export type Rate = Schema["RateBody"];

const units: Record<number, string> = { 1: "second", 60: "minute", 3600: "hour", 86_400: "day" };

/** 50 per second, 10 at a stretch */
function rateOf({ count, per = 1, burst }: Rate): string {
  const text = `${number(count)} per ${units[per] ?? duration(per)}`;
  return burst === null || burst === undefined || burst === count ? text : `${text}, ${number(burst)} in a burst`;
}

/** Each limit in a few words. */
export function wordsOf(limits: Limits): string[] {
  const weights = Object.entries(limits.weights);
  const shown = weights.slice(0, 3).map(([tenant, weight]) => `${tenant} ×${number(weight)}`);
  return [
    limits.concurrency === null ? "" : `${number(limits.concurrency)} at once`,
    limits.rate === null ? "" : rateOf(limits.rate),
    limits.key_concurrency === null || limits.ordered ? "" : `${number(limits.key_concurrency)} at once of each key`,
    limits.key_rate === null ? "" : `${rateOf(limits.key_rate)} of each key`,
    limits.ordered ? "in order of each key" : "",
    limits.fair ? `fair between tenants${shown.length ? ` (${shown.join(", ")}${weights.length > 3 ? `, ${plural(weights.length - 3, "more")}` : ""})` : ""}` : "",
  ].filter(Boolean);
}

export const originOf = ({ origin }: Limits): string => (origin === "code" ? "declared in code" : "set by an operator, over what code declares");

/** How full the topic is: running jobs of those that may run at once; null where nothing limits that. */
export function usedOf(limits: Limits | undefined, running: number): { most: number; full: boolean } | null {
  const most = limits?.concurrency ?? null;
  return most === null ? null : { most, full: running >= most };
}

const bodyOf = ({ concurrency, rate, key_concurrency, key_rate, ordered, fair, weights }: Limits): Schema["LimitsBody"] => ({ concurrency, rate, key_concurrency, key_rate, ordered, fair, weights });

/** Throws what the server refuses: the form shows it. */
export async function setLimits(topic: string, body: Schema["LimitsBody"], before: Limits | undefined, after: () => void): Promise<void> {
  const set = await answer(api.PUT("/api/jobs/limits/{topic}", { params: { path: { topic } }, body }));
  // What code had declared cannot be put back as the code's: removing brings it back with the next worker.
  const undo = before === undefined ? () => takeOff(topic, after) : before.origin === "operator" ? () => putBack(before, after) : undefined;
  toasts.done(`${topic}: ${wordsOf(set).join(", ")}`, undo);
  after();
}

async function takeOff(topic: string, after: () => void, undo?: () => Promise<void>): Promise<void> {
  try {
    await answer(api.DELETE("/api/jobs/limits/{topic}", { params: { path: { topic } } }));
    toasts.done(`Removed the limits of ${topic}`, undo);
  } catch (error) {
    toasts.trouble(problemText(error));
  }
  after();
}

async function putBack(before: Limits, after: () => void): Promise<void> {
  try {
    await setLimits(before.topic, bodyOf(before), undefined, () => undefined);
  } catch (error) {
    toasts.trouble(problemText(error));
  }
  after();
}

/** An operator's own can be put back; what code declares would come back as something else, so it is asked for. */
export async function removeLimits(limits: Limits, after: () => void): Promise<void> {
  const { topic } = limits;
  if (limits.origin === "operator") return takeOff(topic, after, () => putBack(limits, after));
  const agreed = await ask({
    title: `Remove the limits of ${topic}?`,
    text: "Workers take any number of its jobs from now on.\nCode declares these limits: they come back when a worker with that code starts.",
    confirm: "Remove the limits",
    danger: true,
  });
  if (agreed) await takeOff(topic, after);
}
