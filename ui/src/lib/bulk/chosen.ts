/** One verb on a few jobs somebody chose: a call for each, some at a time, with one toast at the end. */
import { answer, api, Problem, problemText, type Schema } from "$lib/api/client";
import { ask } from "$lib/asking.svelte";
import { live } from "$lib/live.svelte";
import { toasts } from "$lib/toasts.svelte";
import { number, plural } from "$lib/words";
import { MANY, verbs, type Action } from "./verbs";

type Chosen = Pick<Schema["JobSummary"], "id" | "shown_state">;

const AT_A_TIME = 6;

/** Ask where it cannot be taken back, do it, and say what came of it. False: it was thought better of. */
export async function actOnChosen(action: Action, chosen: readonly Chosen[]): Promise<boolean> {
  const verb = verbs[action];
  const able = chosen.filter((job) => verb.states.includes(job.shown_state));
  if (able.length === 0) {
    toasts.trouble(`Only jobs that are ${verb.able} can be ${verb.done}.`);
    return false;
  }
  // Requeueing takes a cancel back only for what was due: a job for later would run at once.
  const undoable = action === "cancel" && able.every((job) => job.shown_state === "pending");
  const asks = action === "delete" || action === "take-back" || (action === "cancel" ? !undoable : able.length >= MANY);
  if (asks) {
    const what = `${verb.label} ${plural(able.length, "job")}`;
    const left = chosen.length - able.length;
    const others = left > 0 ? `\n${plural(left, "job")} of those chosen ${left === 1 ? "is" : "are"} not ${verb.able}, and stay${left === 1 ? "s" : ""} as ${left === 1 ? "it is" : "they are"}.` : "";
    const typed = action === "delete" && able.length >= MANY ? number(able.length) : undefined;
    if (!(await ask({ title: `${what}?`, text: verb.means + others, confirm: what, danger: verb.danger, typed }))) return false;
  }
  const { done, requested, refused } = await each(action, able);
  live.nudge();
  const parts = [
    done.length > 0 || requested === 0 ? `${plural(done.length, "job")} ${verb.done}` : "",
    requested > 0 ? `${plural(requested, "job")} asked to stop` : "",
  ].filter(Boolean);
  if (done.length + requested > 0) toasts.done(parts.join(", "), undoable && done.length > 0 ? () => takeBack(done) : undefined);
  if (refused.length > 0) toasts.trouble(refused.length === 1 ? refused[0]! : `${plural(refused.length, "job")} could not be ${verb.done}: ${refused[0]}`);
  return true;
}

async function takeBack(cancelled: readonly Chosen[]): Promise<void> {
  const { done, refused } = await each("requeue", cancelled);
  live.nudge();
  if (done.length > 0) toasts.done(`${plural(done.length, "job")} due again`);
  if (refused.length > 0) toasts.trouble(`${plural(refused.length, "job")} could not be brought back: ${refused[0]}`);
}

interface Came {
  done: Chosen[];
  /** running ones whose workers have been asked to stop */
  requested: number;
  refused: string[];
}

async function each(action: Action, jobs: readonly Chosen[]): Promise<Came> {
  const came: Came = { done: [], requested: 0, refused: [] };
  const left = [...jobs];
  async function some(): Promise<void> {
    for (let job = left.shift(); job; job = left.shift()) {
      try {
        if ((await one(action, job.id)).requested) came.requested += 1;
        else came.done.push(job);
      } catch (error) {
        came.refused.push(problemText(error));
        if (error instanceof Problem && (error.status === 0 || error.status === 401)) left.length = 0; // nobody to tell it to
      }
    }
  }
  await Promise.all(Array.from({ length: AT_A_TIME }, some));
  return came;
}

function one(action: Action, id: string): Promise<Schema["Changed"]> {
  const params = { path: { id } };
  if (action === "delete") return answer(api.DELETE("/api/jobs/{id}", { params }));
  if (action === "cancel") return answer(api.POST("/api/jobs/{id}/cancel", { params }));
  if (action === "take-back") return answer(api.POST("/api/jobs/{id}/take-back", { params }));
  return answer(api.POST("/api/jobs/{id}/requeue", { params }));
}
