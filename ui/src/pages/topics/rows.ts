/** Topics as rows: what the API counted, with what the event stream has told since. */
import type { Activity } from "$lib/activity";
import type { Schema } from "$lib/api/client";
import type { TopicCounts } from "$lib/live.svelte";

export interface TopicRow {
  topic: string;
  due: number;
  delayed: number;
  running: number;
  completed: number;
  failed: number;
  paused: boolean;
  pausedUntil: string | undefined;
  /** seconds that jobs waited, on average */
  wait: number | null;
  /** what happened in the window; null when it is not known of this topic */
  activity: Activity | null;
}

export const columns = ["topic", "due", "delayed", "running", "failed", "wait", "enqueued", "done", "errors"] as const;
export type Column = (typeof columns)[number];

/** One that nobody has counted has no jobs: it has limits only. */
export function rowOf(topic: string, counted: Schema["TopicDetail"] | undefined, told: TopicCounts | undefined, activity: Activity | undefined): TopicRow {
  const newest = told ?? counted ?? { pending: 0, running: 0, completed: 0, failed: 0, paused: false, paused_until: undefined };
  const delayed = Math.min(newest.pending, counted?.delayed ?? 0);
  return {
    topic,
    delayed,
    due: newest.pending - delayed,
    running: newest.running,
    completed: newest.completed,
    failed: newest.failed,
    paused: newest.paused,
    pausedUntil: newest.paused_until ?? undefined,
    wait: counted?.average_wait_seconds ?? null,
    activity: activity ?? null,
  };
}

function figure(row: TopicRow, column: Column): number {
  switch (column) {
    case "topic":
      return 0;
    case "wait":
      return row.wait ?? -1;
    case "enqueued":
      return row.activity?.enqueued ?? -1;
    case "done":
      return row.activity?.completed ?? -1;
    case "errors":
      return row.activity?.failed ?? -1;
    default:
      return row[column];
  }
}

/** Names in the order of the alphabet, figures the largest first; names decide between equals. */
export function byColumn(column: Column): (one: TopicRow, other: TopicRow) => number {
  return (one, other) => figure(other, column) - figure(one, column) || one.topic.localeCompare(other.topic);
}
