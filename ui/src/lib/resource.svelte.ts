/**
 * Something a page reads from the API, read again when it may have changed.
 *
 *     const stats = resource(() => ({ window }), ({ window }) => answer(api.GET(…)), { live: true });
 *     {#if stats.data} … {/if}
 *
 * The first function says what it depends on; when that changes, it is read anew. What was read stays shown until
 * the new answer is there, and an answer that comes after a newer question is dropped.
 */
import { untrack } from "svelte";
import { Problem, problemText, type ProblemDocument } from "./api/client";
import { clock } from "./clock.svelte";
import { live } from "./live.svelte";

export interface ResourceOptions {
  /** read again when jobs move, at most once in `every` milliseconds */
  live?: boolean;
  /** read again after so many milliseconds at the latest; never when the tab is hidden */
  every?: number;
  /** forget the old answer when the question changes, instead of showing it until the new one is there */
  fresh?: boolean;
}

export class Resource<T> {
  data = $state.raw<T | undefined>(undefined);
  error = $state("");
  /** what the server said of it: where in a filter it is, for instance */
  problem = $state.raw<ProblemDocument | undefined>(undefined);
  loading = $state(false);
  /** when the answer came, in milliseconds, by the server's clock */
  at = $state(0);
  refresh: () => Promise<void> = async () => {};
}

/** Call it while a component is made: it ends with the component. */
export function resource<Q, T>(
  question: () => Q,
  read: (question: Q, signal: AbortSignal) => Promise<T>,
  { live: follows = false, every = follows ? 2000 : 0, fresh = false }: ResourceOptions = {},
): Resource<T> {
  const found = new Resource<T>();
  let current: AbortController | null = null;
  let began = 0;

  async function load(asked: Q): Promise<void> {
    current?.abort();
    const mine = (current = new AbortController());
    began = Date.now();
    found.loading = true;
    try {
      const data = await read(asked, mine.signal);
      if (mine.signal.aborted) return;
      found.data = data;
      found.error = "";
      found.problem = undefined;
      found.at = clock.present();
    } catch (error) {
      if (mine.signal.aborted) return;
      found.error = problemText(error);
      found.problem = error instanceof Problem ? error.document : undefined;
    } finally {
      if (current === mine) {
        found.loading = false;
        current = null;
      }
    }
  }

  $effect(() => {
    const asked = question();
    untrack(() => {
      if (fresh) found.data = undefined;
      found.refresh = () => load(asked);
      void load(asked);
    });
    return () => current?.abort();
  });

  if (every > 0) {
    let seen = live.changes;
    $effect(() => {
      const timer = setInterval(() => {
        if (document.hidden || current !== null) return;
        const changed = follows && live.changes !== seen;
        const old = Date.now() - began >= (follows ? every * 8 : every);
        if (changed ? Date.now() - began >= every : old) {
          seen = live.changes;
          void found.refresh();
        }
      }, Math.min(every, 1000));
      return () => clearInterval(timer);
    });
  }
  return found;
}
