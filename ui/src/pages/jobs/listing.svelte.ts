/**
 * The jobs of one filter, page by page, kept up to date without moving under whoever looks.
 *
 * While nobody holds the list (points at it, has chosen something, has scrolled), a new answer replaces what is shown.
 * While somebody does, rows change where they are: those that match no more stay, marked, and new ones are counted.
 */
import { untrack } from "svelte";
import { answer, api, Problem, problemText, type ProblemDocument, type Schema } from "$lib/api/client";
import { live } from "$lib/live.svelte";

export type Job = Schema["JobSummary"];
type Page = Schema["JobList"];

export interface Row {
  job: Job;
  /** it does not match any more, or is deleted */
  left: "" | "left" | "deleted";
  /** it was asked for by itself since it left */
  looked?: boolean;
}

export interface Question {
  where: string;
  /** the cursor the page begins at; "" is the first page */
  after: string;
}

const LIMIT = 50;
const EVERY_MILLISECONDS = 2000;
const SHARE = 5; // a search that takes a second is read again every five
const QUIET = 8; // without news it is read again so much later
const MOST_LOOKED_AFTER = 20; // rows that left are asked for one by one
const FINAL = new Set(["completed", "failed", "cancelled"]);

export class Listing {
  rows = $state.raw<readonly Row[]>([]);
  total = $state(0);
  totalExact = $state(true);
  /** where the next page begins */
  next = $state<string | null>(null);
  /** how far back a search came in its second; null when it came to the end */
  searchedBackTo = $state<string | null>(null);
  /** jobs that came since, while the list was held */
  arrived = $state(0);
  error = $state("");
  problem = $state.raw<ProblemDocument | undefined>(undefined);
  /** false until the first answer to this question is there */
  settled = $state(false);
  reading = $state(false);
  searching = $state(false);
  paused = $state(false);

  #question: Question = { where: "", after: "" };
  #held: () => boolean;
  #current: AbortController | null = null;
  #began = 0;
  #took = 0;
  #seen = 0;
  #extended = false; // rows of further searches stand below

  constructor(held: () => boolean) {
    this.#held = held;
  }

  get held(): boolean {
    return this.#extended || this.#held();
  }

  async open(question: Question): Promise<void> {
    this.#question = question;
    this.settled = false;
    await this.replace();
  }

  /** Read the page anew, and show it as it is. */
  replace(): Promise<void> {
    return this.#read(async (signal) => {
      const page = await this.#page({ cursor: this.#question.after || undefined }, signal);
      this.#extended = false;
      this.#tell(page);
      this.rows = page.items.map((job) => ({ job, left: "" }));
      this.arrived = 0;
    });
  }

  /** A search that ended with its second goes on where it stopped. */
  async further(): Promise<void> {
    const cursor = this.next;
    if (!cursor) return;
    this.searching = true;
    await this.#read(async (signal) => {
      const page = await this.#page({ cursor }, signal);
      const known = new Set(this.rows.map((row) => row.job.id));
      this.rows = [...this.rows, ...page.items.filter((job) => !known.has(job.id)).map((job) => ({ job, left: "" as const }))];
      this.#extended = true;
      this.#tell(page);
    });
    this.searching = false;
  }

  /** Called now and then: read again when it is time. */
  look(): void {
    if (document.hidden || this.paused || this.#current !== null) return;
    // What the server refused it would refuse again; one that could not be reached may be back.
    if (!this.settled && (this.problem || !this.error)) return;
    const age = Date.now() - this.#began;
    const every = Math.max(EVERY_MILLISECONDS, SHARE * this.#took);
    // News come from a server that can be reached, also when it could not be before.
    const moving = live.changes !== this.#seen || (!this.error && this.rows.some((row) => !row.left && row.job.state === "running"));
    if (age < (moving ? every : every * QUIET)) return;
    this.#seen = live.changes;
    void (this.held && this.rows.length > 0 ? this.#renew() : this.replace());
  }

  end(): void {
    this.#current?.abort();
  }

  /** Rows change where they are. */
  #renew(): Promise<void> {
    const { after } = this.#question;
    // One more millisecond: the server's times are finer than ours.
    const newest = new Date(Date.parse(this.rows[0]!.job.created_at) + 1).toISOString();
    return this.#read(async (signal) => {
      const [page, came] = await Promise.all([
        this.#page(after ? { cursor: after } : { created_before: newest }, signal),
        after ? null : this.#page({ created_after: newest, limit: 1 }, signal),
      ]);
      const floor = page.partial ? Date.parse(page.searched_back_to ?? "") : page.cursor ? Date.parse(page.items.at(-1)!.created_at) : -Infinity;
      const found = new Map(page.items.map((job) => [job.id, job]));
      this.rows = this.rows.map((row) => {
        const job = found.get(row.job.id);
        if (job) return { job, left: "" };
        return row.left || !(Date.parse(row.job.created_at) > floor) ? row : { job: row.job, left: "left" };
      });
      if (!this.#extended) this.#tell(page, came);
      if (came) this.arrived = came.total;
      await this.#lookAfter(signal);
    });
  }

  /** What became of those that match no more. */
  async #lookAfter(signal: AbortSignal): Promise<void> {
    const wanted = this.rows.filter((row) => row.left === "left" && !(row.looked && FINAL.has(row.job.state))).slice(0, MOST_LOOKED_AFTER);
    const became = new Map<string, Row>();
    await Promise.all(
      wanted.map(async ({ job: { id } }) => {
        try {
          became.set(id, { job: await answer(api.GET("/api/jobs/{id}", { params: { path: { id } }, signal })), left: "left", looked: true });
        } catch (error) {
          if (!(error instanceof Problem) || error.status !== 404) throw error;
          const row = this.rows.find((one) => one.job.id === id);
          if (row) became.set(id, { job: row.job, left: "deleted" });
        }
      }),
    );
    if (became.size > 0) this.rows = this.rows.map((row) => became.get(row.job.id) ?? row);
  }

  #tell(page: Page, came: Page | null = null): void {
    // A list that ends here has been counted by showing it, even if the server did not count to the end.
    const whole = page.cursor === null && !page.partial && this.#question.after === "";
    this.total = (whole && !this.#extended ? page.items.length : page.total) + (came?.total ?? 0);
    this.totalExact = (whole || page.total_exact) && (came?.total_exact ?? true);
    this.next = page.cursor;
    this.searchedBackTo = page.partial ? page.searched_back_to : null;
  }

  #page(place: { cursor?: string; created_before?: string; created_after?: string; limit?: number }, signal: AbortSignal): Promise<Page> {
    const { where } = this.#question;
    return answer(api.GET("/api/jobs", { params: { query: { limit: LIMIT, where: where || undefined, ...place } }, signal }));
  }

  async #read(read: (signal: AbortSignal) => Promise<void>): Promise<void> {
    this.#current?.abort();
    const mine = (this.#current = new AbortController());
    this.#began = Date.now();
    this.reading = true;
    try {
      await read(mine.signal);
      this.error = "";
      this.problem = undefined;
      this.settled = true;
    } catch (error) {
      if (mine.signal.aborted) return;
      this.error = problemText(error);
      this.problem = error instanceof Problem ? error.document : undefined;
    } finally {
      if (this.#current === mine) {
        this.#current = null;
        this.#took = Date.now() - this.#began;
        this.reading = false;
      }
    }
  }
}

/** Call it while a component is made: it ends with the component. */
export function listing(question: () => Question, held: () => boolean): Listing {
  const made = new Listing(held);
  $effect(() => {
    const asked = question();
    untrack(() => void made.open(asked));
    return () => made.end();
  });
  $effect(() => {
    const timer = setInterval(() => made.look(), 500);
    return () => clearInterval(timer);
  });
  return made;
}
