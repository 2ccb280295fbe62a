/** Groups of failed jobs: their names, their order, and the windows their trends are told for. */
import type { Schema } from "$lib/api/client";

export type FailedGroup = Schema["FailedGroup"];
export type Order = "count" | "newest";
export type WindowName = "1h" | "6h" | "24h" | "7d";

export const windows: Record<WindowName, { text: string; seconds: number }> = {
  "1h": { text: "1 h", seconds: 3600 },
  "6h": { text: "6 h", seconds: 21_600 },
  "24h": { text: "24 h", seconds: 86_400 },
  "7d": { text: "7 d", seconds: 604_800 },
};

/** The same error in two tasks is two groups. */
export function keyOf(group: FailedGroup): string {
  return `${group.fingerprint}.${group.topic}.${group.task}`;
}

export function byOrder(order: Order): (one: FailedGroup, other: FailedGroup) => number {
  const newest = (one: FailedGroup, other: FailedGroup): number => other.last_failed_at.localeCompare(one.last_failed_at);
  return order === "newest" ? newest : (one, other) => other.jobs - one.jobs || newest(one, other);
}

/** The jobs of a group, among those that were asked for. */
export function whereOf(group: FailedGroup, where: string): string {
  return where ? `${group.where} (${where})` : group.where;
}
