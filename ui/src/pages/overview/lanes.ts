/** What a lane (the jobs of one task in one topic) did in its window. */
import type { Schema } from "$lib/api/client";
import { term } from "$lib/filter/writing";

type Lane = Schema["LaneShape"];

/** Attempts that ended in an error: those tried again, and the last ones of failed jobs. */
export function errored(lane: Lane): number {
  return (lane.failed_in_window ?? 0) + (lane.retried_in_window ?? 0);
}

export function attempts(lane: Lane): number {
  return (lane.completed_in_window ?? 0) + errored(lane);
}

/** The filter for its jobs. */
export function laneTerms(topic: string, task: string): string {
  return topic === task ? term("topic", topic) : `${term("topic", topic)} ${term("task", task)}`;
}
