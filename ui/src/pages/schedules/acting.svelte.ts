/** What one does to a schedule. Pausing and resuming can be taken back; a job that was made and a schedule that is gone cannot. */
import { answer, api, problemText } from "$lib/api/client";
import { ask } from "$lib/asking.svelte";
import { live } from "$lib/live.svelte";
import { jobHref } from "$lib/router.svelte";
import { toasts } from "$lib/toasts.svelte";
import type { Schedule } from "./words";

const path = (schedule: string) => ({ params: { path: { schedule } } });

async function attempt(act: () => Promise<void>, after: () => void): Promise<void> {
  try {
    await act();
  } catch (error) {
    toasts.trouble(problemText(error));
  }
  live.nudge();
  after();
}

/** `after` is called whatever came of it: what is shown may be old. */
export function setPaused(name: string, paused: boolean, after: () => void, undoable = true): Promise<void> {
  return attempt(async () => {
    if (paused) await answer(api.POST("/api/jobs/schedules/{schedule}/pause", path(name)));
    else await answer(api.POST("/api/jobs/schedules/{schedule}/resume", path(name)));
    toasts.done(paused ? `Paused ${name}` : `Resumed ${name}`, undoable ? () => setPaused(name, !paused, after, false) : undefined);
  }, after);
}

export function runNow(name: string, after: () => void): Promise<void> {
  return attempt(async () => {
    const made = await answer(api.POST("/api/jobs/schedules/{schedule}/run", path(name)));
    const text = made.duplicate ? `The job of ${name} with its key was there already` : `Ran ${name}`;
    toasts.done(text, undefined, { href: jobHref(made.id), text: "Open the job" });
  }, after);
}

export async function remove(schedule: Schedule, after: () => void): Promise<void> {
  const { name } = schedule;
  const comesBack = schedule.origin === "declared" && !schedule.undeclared;
  const agreed = await ask({
    title: `Delete ${name}?`,
    text: `It makes no more jobs, and what it has counted is gone. The jobs it made stay.${comesBack ? "\nCode declares it: it comes back when a worker with that code starts. To keep it quiet, pause it instead." : ""}`,
    confirm: "Delete the schedule",
    danger: true,
  });
  if (!agreed) return;
  await attempt(async () => {
    await answer(api.DELETE("/api/jobs/schedules/{schedule}", path(name)));
    toasts.done(`Deleted ${name}`);
  }, after);
}
