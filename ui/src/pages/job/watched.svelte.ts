/**
 * One job, as it changes: read whole, then again whenever the event stream tells of something that the event itself
 * does not carry. What was seen to happen is kept, because the job's own record forgets some of it.
 */
import { untrack } from "svelte";
import { answer, api, Problem } from "$lib/api/client";
import { clock } from "$lib/clock.svelte";
import { readExactly } from "$lib/exact";
import { followJob, type JobEntry, type JobEvent } from "$lib/live.svelte";
import { resource, type Resource } from "$lib/resource.svelte";
import type { Job } from "./life";

const AGAIN_MILLISECONDS = 400; // a few times a second is enough for anybody who looks
const MOST_SEEN = 200;

export interface SeenEntry extends JobEntry {
  /** when it came, for what nobody wrote down the time of */
  seen?: number;
}

export class WatchedJob {
  /** the last that was known of it, even when it is gone */
  job = $state.raw<Job | undefined>(undefined);
  gone = $state(false);
  /** happenings that came by while we looked */
  seen = $state.raw<readonly SeenEntry[]>([]);
  reading: Resource<Job | null>;
  #again = 0;
  #readAt = 0;
  #goneId = "";
  #id: () => string;

  constructor(id: () => string) {
    this.#id = id;
    // What is gone does not come back, and is not asked for again.
    this.reading = resource(id, async (wanted, signal) => (this.#goneId === wanted ? null : read(wanted, signal)), { live: true, every: 5000, fresh: true });
    $effect(() => {
      void id();
      untrack(() => {
        this.job = undefined;
        this.gone = false;
        this.seen = [];
      });
      return () => clearTimeout(this.#again);
    });
    $effect(() => {
      const found = this.reading.data;
      if (found === undefined) return;
      if (found === null) this.forget();
      else if (!this.gone) this.job = found;
    });
    // A finished job has no stream; should somebody requeue it, the next reading starts one.
    const followed = $derived(this.job !== undefined && !this.gone && !isFinal(this.job) ? id() : null);
    $effect(() => {
      if (followed === null) return;
      return followJob(followed, (event, first) => this.#tell(event, first), () => this.forget());
    });
  }

  /** At once, or soon after the reading before it: one that is under way is not cut short. */
  refresh(): void {
    clearTimeout(this.#again);
    const rest = this.#readAt + AGAIN_MILLISECONDS - Date.now();
    if (rest > 0 || this.reading.loading) {
      this.#again = setTimeout(() => this.refresh(), Math.max(rest, AGAIN_MILLISECONDS / 4));
      return;
    }
    this.#readAt = Date.now();
    void this.reading.refresh();
  }

  /** It has been deleted, here or elsewhere. */
  forget(): void {
    clearTimeout(this.#again);
    this.gone = true;
    this.#goneId = untrack(this.#id);
  }

  #tell(event: JobEvent, first: boolean): void {
    const known = new Set([...(this.job?.timeline ?? []), ...this.seen].map((entry) => entry.id));
    const fresh = event.entries.filter((entry) => !known.has(entry.id));
    const progress = fresh.findLast((entry) => entry.what === "progress")?.progress;
    const others = fresh.filter((entry) => entry.what !== "progress");
    if (others.length > 0) this.seen = [...this.seen, ...others.map((entry) => (first ? entry : { ...entry, seen: clock.present() }))].slice(-MOST_SEEN);
    if (progress && this.job) this.job = { ...this.job, progress: { message: null, stage: null, ...progress } };
    if (others.length > 0 || event.state !== this.job?.shown_state || event.attempt !== this.job.attempt) this.refresh();
  }
}

export function isFinal(job: Job): boolean {
  return job.state === "completed" || job.state === "failed" || job.state === "cancelled";
}

/** The job, or null when there is none, or none by such an id. */
async function read(id: string, signal: AbortSignal): Promise<Job | null> {
  try {
    return readExactly<Job>(await answer(api.GET("/api/jobs/{id}", { params: { path: { id } }, parseAs: "text", signal })));
  } catch (error) {
    if (error instanceof Problem && (error.status === 404 || error.status === 422)) return null;
    throw error;
  }
}
