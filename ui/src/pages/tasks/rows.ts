/** Tasks as rows: those the server knows, and those it knows only from their jobs. */
import { addUp, nothing, type Activity } from "$lib/activity";
import type { Schema } from "$lib/api/client";

type Task = Schema["TaskShape"];
type Lane = Schema["LaneShape"];
type Durations = Schema["TaskDurations"];

export interface TaskRow {
  /** of the task, or "" for jobs of a topic that name none */
  name: string;
  /** where its jobs go, home first */
  topics: string[];
  /** what the server knows of it; null when it has only seen its jobs */
  task: Task | null;
  activity: Activity;
  run: Schema["Distribution"] | null;
}

/** What a row is called: jobs without a task go by their topic. */
export function titleOf(row: TaskRow): string {
  return row.name || row.topics[0]!;
}

export function hrefOf(row: { name: string; topics: readonly string[] }): string {
  return `tasks?${new URLSearchParams(row.name ? { task: row.name } : { topic: row.topics[0]! })}`;
}

export function rowsOf(tasks: readonly Task[], lanes: readonly Lane[], durations: readonly Durations[], windowSeconds: number, now: number): TaskRow[] {
  const known = new Map<string, string>();
  for (const task of tasks) for (const name of [task.name, ...task.aliases]) known.set(name, task.name);
  // A lane without a task is a thing of its own topic; \n is in no name.
  const keyOf = (of: { task: string; topic: string }) => (of.task ? (known.get(of.task) ?? of.task) : `\n${of.topic}`);
  const sums = addUp(lanes, keyOf, windowSeconds, now);
  const runs = new Map<string, Durations["run_time"]>();
  for (const one of durations) {
    const before = runs.get(keyOf(one));
    if (!before || (before.count ?? 0) < (one.run_time.count ?? 0)) runs.set(keyOf(one), one.run_time); // the busiest topic speaks for it
  }
  const topics = new Map<string, Set<string>>();
  for (const lane of lanes) topics.set(keyOf(lane), (topics.get(keyOf(lane)) ?? new Set()).add(lane.topic));
  const keys = new Set([...tasks.map((task) => task.name), ...sums.keys()]);
  const byName = new Map(tasks.map((task) => [task.name, task]));
  return [...keys]
    .map((key) => {
      const task = byName.get(key) ?? null;
      const places = new Set([...(task ? [task.topic] : []), ...(topics.get(key) ?? [])]);
      return { name: key.startsWith("\n") ? "" : key, topics: [...places], task, activity: sums.get(key) ?? nothing(), run: runs.get(key) ?? null };
    })
    .sort((one, other) => titleOf(one).localeCompare(titleOf(other)));
}
