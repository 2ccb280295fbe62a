/** What one does to a topic: pause and resume it, with a way back, and give its failed jobs another chance. */
import { answer, api, problemText } from "./api/client";
import { ask } from "./asking.svelte";
import { bulk } from "./bulk/bulk.svelte";
import { verbs } from "./bulk/verbs";
import { clock } from "./clock.svelte";
import { live, type TopicCounts } from "./live.svelte";
import { toasts } from "./toasts.svelte";
import { duration, plural } from "./words";

/** Most jobs of one kick; more go by a bulk action, which shows how far it is. */
const MOST_KICKED = 1000;

const put = {
  pause: (topic: string, seconds: number | null) => answer(api.POST("/api/jobs/topics/{topic}/pause", { params: { path: { topic } }, body: { seconds } })),
  resume: (topic: string) => answer(api.POST("/api/jobs/topics/{topic}/resume", { params: { path: { topic } } })),
};

/** How a topic was before it was changed: as the caller shows it, or else as the event stream told it. */
export type Pausing = Pick<TopicCounts, "paused" | "paused_until">;

/** Does it and tells of it; the promise is of whether it was done. */
async function attempt(act: () => Promise<unknown>, done: () => void): Promise<boolean> {
  try {
    await act();
  } catch (error) {
    toasts.trouble(problemText(error));
    return false;
  }
  live.nudge();
  done();
  return true;
}

/** As it was before: paused for what is left, paused without an end, or not paused. Nothing where that is not known. */
function putBack(topic: string, before: Pausing | undefined): (() => Promise<void>) | undefined {
  if (before === undefined) return undefined;
  return async () => {
    const act = () => (before.paused ? put.pause(topic, secondsLeft(before.paused_until)) : put.resume(topic));
    await attempt(act, () => toasts.done(before.paused ? `Paused ${topic} again` : `Resumed ${topic}`));
  };
}

function secondsLeft(until: string | undefined): number | null {
  return until === undefined ? null : Math.max(1, (Date.parse(until) - clock.present()) / 1000);
}

/** Without `seconds`, until it is resumed. */
export function pauseTopic(topic: string, seconds: number | null, before: Pausing | undefined = live.topics.get(topic)): Promise<boolean> {
  const undo = putBack(topic, before);
  return attempt(
    () => put.pause(topic, seconds),
    () => toasts.done(`Paused ${topic} ${seconds === null ? "until it is resumed" : `for ${duration(seconds)}`}`, undo),
  );
}

export function resumeTopic(topic: string, before: Pausing | undefined = live.topics.get(topic)): Promise<boolean> {
  const undo = putBack(topic, before);
  return attempt(
    () => put.resume(topic),
    () => toasts.done(`Resumed ${topic}`, undo),
  );
}

/** Asks first: jobs that run again cannot be called back together. */
export async function kickTopic(topic: string, failed: number): Promise<void> {
  if (failed > MOST_KICKED) {
    bulk.propose({ action: "requeue", topic, state: "failed", whose: `of ${topic}`, listed: failed });
    return;
  }
  const agreed = await ask({
    title: `Requeue ${plural(failed, "failed job")} of ${topic}?`,
    text: verbs.requeue.means,
    confirm: `Requeue ${plural(failed, "job")}`,
  });
  if (!agreed) return;
  let kicked = 0;
  await attempt(
    async () => {
      ({ kicked } = await answer(api.POST("/api/jobs/topics/{topic}/kick", { params: { path: { topic } }, body: { count: failed } })));
    },
    () => toasts.done(`${plural(kicked, "job")} of ${topic} requeued`),
  );
}
