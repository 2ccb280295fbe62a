/**
 * A list that comes by cursor, newest first: the first page is read again when asked to, more pages are added below.
 *
 *     const keys = paged((cursor) => answer(api.GET("/api/jobs/keys", { params: { query: { cursor } } })));
 */
import { problemText } from "./api/client";

interface Page<T> {
  items: readonly T[];
  cursor?: string | null;
}

const MOST = 2000; // items held at once

export class Paged<T extends object> {
  items = $state.raw<readonly T[]>([]);
  /** where the next page begins; null at the end */
  cursor = $state.raw<string | null>(null);
  known = $state(false);
  loading = $state(false);
  error = $state("");
  #round = 0;
  #failed: () => Promise<void> = async () => {};

  constructor(
    private readonly read: (cursor: string | undefined) => Promise<Page<T>>,
    private readonly keyOf: (item: T) => string,
  ) {}

  get full(): boolean {
    return this.items.length >= MOST;
  }

  /** Anew, from the first page. */
  async begin(): Promise<void> {
    const round = (this.#round += 1);
    await this.#load(() => this.begin(), undefined, (page) => {
      if (round !== this.#round) return;
      this.items = page.items;
      this.cursor = page.cursor ?? null;
    });
    this.known = true;
  }

  async more(): Promise<void> {
    const round = this.#round;
    if (this.cursor === null || this.loading) return;
    await this.#load(() => this.more(), this.cursor, (page) => {
      if (round !== this.#round) return;
      this.items = [...this.items, ...page.items];
      this.cursor = page.cursor ?? null;
    });
  }

  /** What is new since: put on top, and the pages below stay. */
  async renew(): Promise<void> {
    const round = this.#round;
    if (this.loading) return;
    await this.#load(() => this.renew(), undefined, (page) => {
      if (round !== this.#round) return;
      const fresh = new Set(page.items.map(this.keyOf));
      const kept = this.items.filter((item) => !fresh.has(this.keyOf(item)));
      // More came than one page has: what is between is not known, so the list begins anew.
      const joined = kept.length < this.items.length || this.items.length === 0;
      this.items = joined ? [...page.items, ...kept] : page.items;
      if (!joined || kept.length === 0) this.cursor = page.cursor ?? null;
    });
  }

  /** Once more what went wrong last. */
  retry(): Promise<void> {
    return this.#failed();
  }

  async #load(again: () => Promise<void>, cursor: string | undefined, take: (page: Page<T>) => void): Promise<void> {
    this.loading = true;
    try {
      take(await this.read(cursor));
      this.error = "";
    } catch (error) {
      this.error = problemText(error);
      this.#failed = again;
    } finally {
      this.loading = false;
    }
  }
}
