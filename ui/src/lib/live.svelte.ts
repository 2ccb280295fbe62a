/**
 * The event stream: counts by topic as they change, and a nudge for whoever shows something that may have changed.
 *
 * `live.changes` grows at most once a second while jobs move. `live.samples` are the totals of the last minutes, for
 * the live chart; they are collected from login on, whatever page is shown.
 */
import { answer, api, problemText, type Schema } from "./api/client";
import { clock } from "./clock.svelte";
import { stream } from "./stream";

export interface TopicCounts {
  topic: string;
  pending: number;
  running: number;
  completed: number;
  failed: number;
  cancelled: number;
  paused: boolean;
  /** undefined when it is not paused, or until somebody resumes it */
  paused_until?: string;
}

/** As the stream has it: a pause without an end ends with the calendar. */
type TopicEvent = Omit<TopicCounts, "paused">;
const END_OF_CALENDAR = "9999-12-31";

/** Totals at one moment, in seconds since the epoch. */
export interface Sample {
  at: number;
  pending: number;
  running: number;
  completed: number;
  failed: number;
  cancelled: number;
}

export type JobEntry = Schema["EntryShape"];
export interface JobEvent {
  id: string;
  topic: string;
  state: string;
  attempt: number;
  entries: JobEntry[];
}

const SAMPLE_SECONDS = 2;
const MOST_SAMPLES = 150; // five minutes
const NUDGE_MILLISECONDS = 1000;
const AGAIN_MILLISECONDS = 5000;

class Live {
  connected = $state(false);
  /** what the server says about the store: it cannot be reached, for instance */
  trouble = $state("");
  changes = $state(0);
  topics = $state.raw<ReadonlyMap<string, TopicCounts>>(new Map());
  samples = $state.raw<readonly Sample[]>([]);

  #end: (() => void) | null = null;
  #counts = new Map<string, TopicCounts>();
  /** whether what there was at the start has been read: before, counts are those of a few topics only */
  #whole = false;
  #dirty = false;
  #timer = 0;
  #again = 0;
  #ticks = 0;

  start(): void {
    this.stop();
    this.#end = stream({}, {
      opened: () => {
        this.connected = true;
        this.trouble = "";
        void this.#begin();
      },
      lost: (refused) => {
        this.connected = false;
        if (refused) void this.#begin(); // a stream does not tell why: the session may have ended
      },
      events: {
        topic: (data) => this.#count(JSON.parse(data) as TopicEvent),
        reset: () => void this.#begin(),
        trouble: (data) => {
          this.trouble = (JSON.parse(data) as { detail: string }).detail;
        },
        recovered: () => {
          this.trouble = "";
          this.#dirty = true;
        },
      },
    });
    this.#timer = setInterval(() => this.#tell(), NUDGE_MILLISECONDS);
  }

  stop(): void {
    this.#end?.();
    this.#end = null;
    clearInterval(this.#timer);
    clearTimeout(this.#again);
    this.connected = false;
    this.#counts.clear();
    this.topics = new Map();
    this.samples = [];
  }

  /** Something was changed from here: whoever shows jobs should look again soon. */
  nudge(): void {
    this.#dirty = true;
  }

  /** The stream tells what changes; what there is already is asked for once. */
  async #begin(): Promise<void> {
    const mine = this.#end;
    clearTimeout(this.#again);
    this.#counts.clear();
    this.#whole = false;
    try {
      const page = await answer(api.GET("/api/jobs/topics", { params: { query: { limit: 1000 } } }));
      if (mine !== this.#end) return;
      for (const { topic, pending, running, completed, failed, cancelled, paused, paused_until } of page.items) {
        // What the stream told meanwhile is newer.
        if (!this.#counts.has(topic)) this.#counts.set(topic, { topic, pending, running, completed, failed, cancelled, paused, paused_until: paused_until ?? undefined });
      }
      this.#whole = true;
      this.#dirty = true;
      this.trouble = "";
    } catch (error) {
      if (mine !== this.#end) return;
      this.trouble = problemText(error);
      if (this.connected) this.#again = setTimeout(() => void this.#begin(), AGAIN_MILLISECONDS);
    }
  }

  #count({ paused_until: until, ...counts }: TopicEvent): void {
    this.#counts.set(counts.topic, { ...counts, paused: until !== undefined, paused_until: until?.startsWith(END_OF_CALENDAR) ? undefined : until });
    this.#dirty = true;
  }

  /** A pause that ends by itself is no event: nothing was changed. */
  #unpause(): void {
    const now = clock.present();
    for (const one of this.#counts.values()) {
      if (one.paused_until === undefined || Date.parse(one.paused_until) > now) continue;
      this.#counts.set(one.topic, { ...one, paused: false, paused_until: undefined });
      this.#dirty = true;
    }
  }

  #tell(): void {
    this.#unpause();
    if (this.#dirty) {
      this.#dirty = false;
      if (this.#whole) this.topics = new Map(this.#counts);
      this.changes += 1;
    }
    this.#ticks += 1;
    if (this.connected && this.#whole && this.#ticks % SAMPLE_SECONDS === 0) {
      this.samples = [...this.samples.slice(1 - MOST_SAMPLES), totals(this.#counts.values())];
    }
  }
}

function totals(counts: Iterable<TopicCounts>): Sample {
  const sum: Sample = { at: clock.present() / 1000, pending: 0, running: 0, completed: 0, failed: 0, cancelled: 0 };
  for (const one of counts) {
    sum.pending += one.pending;
    sum.running += one.running;
    sum.completed += one.completed;
    sum.failed += one.failed;
    sum.cancelled += one.cancelled;
  }
  return sum;
}

/**
 * What happens to one job, until it has finished or the function that is returned is called. `first`: what a stream
 * begins with, which is the job's whole life and no news.
 */
export function followJob(id: string, tell: (event: JobEvent, first: boolean) => void, gone: () => void): () => void {
  let first = true;
  const end = stream({ job: id }, {
    opened: () => (first = true),
    events: {
      job: (data) => {
        tell(JSON.parse(data) as JobEvent, first);
        first = false;
      },
      gone,
      end: () => end(), // or the browser would connect again, and again
    },
  });
  return end;
}

export const live = new Live();
