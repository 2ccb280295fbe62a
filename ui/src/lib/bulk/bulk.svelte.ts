/**
 * One verb on everything a filter matches: proposed with a preview, then done by the server in the background.
 *
 *     bulk.propose({ action: "requeue", where: "state:failed topic:mail" });
 *
 * The shell has the dialog and, when it is closed, a chip for each operation that is under way.
 */
import { answer, api, Problem, problemText, type Schema } from "$lib/api/client";
import { live } from "$lib/live.svelte";
import { toasts } from "$lib/toasts.svelte";
import { plural } from "$lib/words";
import { verbs, type Action } from "./verbs";

export type Operation = Schema["BulkShape"];
/** What has a default may be left out; the types made from the OpenAPI document do not know that. */
type Filter = Partial<Schema["JobsFilter"]>;

export interface Proposal extends Filter {
  action: Action;
  /** whose they are, in the title: "of one error", instead of "everything that matches" */
  whose?: string;
  /** how many jobs the page shows for it: the dialog says so when the server counts another number */
  listed?: number;
  /** it was started: a selection may be let go */
  onstart?: () => void;
}

const MOST_FOUND = 20; // a server runs four at a time
const LOOK_MILLISECONDS = 800; // the server writes down once a second how far it is

class Bulk {
  /** what is asked about in the dialog */
  proposal = $state.raw<Proposal | null>(null);
  /** those under way, and the one the dialog shows to its end */
  operations = $state.raw<readonly Operation[]>([]);
  /** the operation the dialog shows */
  shownId = $state("");
  readonly shown = $derived(this.operations.find((one) => one.id === this.shownId));
  #timer = 0;

  /** Ask about it: the dialog says how many it would be, and starts it when told to. */
  propose(proposal: Proposal): void {
    this.shownId = "";
    this.proposal = proposal;
  }

  async preview({ action, whose: _, onstart: __, listed: ___, ...filter }: Proposal): Promise<Schema["BulkPreview"]> {
    return (await this.#ask(action, filter, true)) as Schema["BulkPreview"];
  }

  async start({ action, whose: _, onstart, listed: __, ...filter }: Proposal): Promise<void> {
    const started = (await this.#ask(action, filter, false)) as Operation;
    onstart?.();
    this.proposal = null;
    this.operations = [...this.operations, started];
    this.shownId = started.id;
    this.#watch();
  }

  /** Those somebody started before this page was loaded, here or elsewhere. */
  async find(): Promise<void> {
    try {
      const { items } = await answer(api.GET("/api/jobs/bulk", { params: { query: { limit: MOST_FOUND } } }));
      const known = new Set(this.operations.map((one) => one.id));
      this.operations = [...this.operations, ...items.filter((one) => one.state === "running" && !known.has(one.id))];
      this.#watch();
    } catch {
      // They go on all the same; whatever else this page reads says what is wrong.
    }
  }

  async stop(id: string): Promise<void> {
    try {
      this.#put(await answer(api.POST("/api/jobs/bulk/{operation}/stop", { params: { path: { operation: id } } })));
    } catch (error) {
      toasts.trouble(problemText(error));
    }
  }

  show(id: string): void {
    this.proposal = null;
    this.shownId = id;
  }

  /** The dialog closes; what is under way goes on. */
  close(): void {
    this.proposal = null;
    this.shownId = "";
    this.operations = this.operations.filter((one) => one.state === "running");
  }

  #ask(action: Action, filter: Filter, preview: boolean) {
    return answer(api.POST("/api/jobs/bulk", { body: { action, filter: filter as Schema["JobsFilter"], lost: false, preview } }));
  }

  #watch(): void {
    clearTimeout(this.#timer);
    if (this.operations.some((one) => one.state === "running")) this.#timer = setTimeout(() => void this.#look(), LOOK_MILLISECONDS);
  }

  async #look(): Promise<void> {
    const running = this.operations.filter((one) => one.state === "running");
    await Promise.all(running.map((one) => this.#lookAt(one)));
    this.#watch();
  }

  async #lookAt(before: Operation): Promise<void> {
    try {
      const now = await answer(api.GET("/api/jobs/bulk/{operation}", { params: { path: { operation: before.id } } }));
      const known = this.operations.find((one) => one.id === before.id);
      this.#put(now);
      if (now.state !== "running" && known?.state === "running") this.#ended(now); // two looks may have been under way
    } catch (error) {
      // A server that cannot be reached for a moment is asked again; one that does not know it has nothing to tell.
      if (!(error instanceof Problem) || error.status === 404 || error.status === 401) this.#drop(before.id);
    }
  }

  #put(now: Operation): void {
    this.operations = this.operations.map((one) => (one.id === now.id ? now : one));
  }

  #drop(id: string): void {
    this.operations = this.operations.filter((one) => one.id !== id);
  }

  #ended(operation: Operation): void {
    live.nudge();
    if (operation.id === this.shownId) {
      if (operation.state !== "done") return; // the dialog says what is left
      this.close();
    }
    this.#drop(operation.id);
    const text = outcome(operation);
    if (operation.state === "done") toasts.done(text);
    else toasts.trouble(text);
  }
}

/** How an operation ended, in a sentence. */
export function outcome({ action, state, done, skipped, reason, error }: Operation): string {
  const what = `${plural(done, "job")} ${verbs[action as Action].done}`;
  const left = skipped > 0 ? `, ${plural(skipped, "job")} had changed meanwhile` : "";
  if (state === "stopped") return `Stopped: ${what}${left}`;
  if (state === "failed") return `Ended early: ${what}${left}. ${error ?? ""}`;
  if (state === "interrupted") return `Its server went away: ${what}${left}. Start it again for the rest.`;
  return what + left + (reason ? `; ${reason}` : "");
}

export const bulk = new Bulk();
