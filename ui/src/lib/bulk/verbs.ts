/** What can be done to many jobs at once, in words. */
import type { Schema } from "$lib/api/client";
import type { ShownState } from "$lib/states";

export type Action = Schema["BulkBody"]["action"];

export interface Verb {
  label: string;
  /** of a job it was done to */
  done: string;
  /** while it is going on */
  doing: string;
  /** which jobs it can be done to */
  able: string;
  /** what it means for them */
  means: string;
  danger: boolean;
  /** states, as they are shown, it can be done to */
  states: readonly ShownState[];
}

/** From so many on requeueing chosen jobs asks, and deleting wants the number typed. */
export const MANY = 20;

const waiting = ["pending", "delayed", "retrying", "blocked"] as const;

export const verbs: Record<Action, Verb> = {
  requeue: {
    label: "Requeue",
    done: "requeued",
    doing: "Requeueing",
    able: "failed or cancelled",
    means: "They are due at once and get all their attempts again. What they had reached in steps and checkpoints is kept.",
    danger: false,
    states: ["failed", "cancelled"],
  },
  cancel: {
    label: "Cancel",
    done: "cancelled",
    doing: "Cancelling",
    able: "waiting or running",
    means: "Those that wait are cancelled at once; workers are asked to stop those that run. A cancelled job can be requeued, and is then due at once.",
    danger: true,
    states: [...waiting, "claimed", "running"],
  },
  "take-back": {
    label: "Take back",
    done: "taken back",
    doing: "Taking back",
    able: "running",
    means: "They are pending again, and the attempt is not counted. Their holders can write nothing any more; a worker stops the handler when it next extends the lease.",
    danger: true,
    states: ["claimed", "running"],
  },
  delete: {
    label: "Delete",
    done: "deleted",
    doing: "Deleting",
    able: "not running",
    means: "They are gone for good, with their payloads, results and errors. This cannot be undone.",
    danger: true,
    states: [...waiting, "completed", "failed", "cancelled"],
  },
};
