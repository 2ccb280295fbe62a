/** What is wrong with a schedule, in the order in which it matters. */
import type { Schedule } from "./words";

export interface Trouble {
  word: string;
  text: string;
  /** since when, where that is known */
  at: string | null;
}

export function troublesOf(schedule: Schedule): Trouble[] {
  const found: Trouble[] = [];
  if (schedule.trouble !== null) found.push({ word: "Could not fire", text: schedule.trouble, at: schedule.trouble_at });
  if (schedule.paused) return found;
  if (schedule.undeclared) found.push({ word: "Not in the code", text: "No worker has declared it for half an hour, and none lets it fire. Delete it, or start a worker of the app that has it.", at: null });
  else if (schedule.overdue_since !== null) found.push({ word: "Overdue", text: "Its time has come, and no worker has made the job. Start a worker of the app that knows its task.", at: schedule.overdue_since });
  return found;
}

export const isTroubled = (schedule: Schedule): boolean => troublesOf(schedule).length > 0;
