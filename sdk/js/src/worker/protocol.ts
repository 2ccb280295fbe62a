/** The routes of remote workers, one method each. Answers are in the order of what was asked. */
import { ProblemError } from "../errors.js";
import type { components } from "../schema.js";
import type { Transport, Wish } from "../transport.js";
import { onAbort } from "../waiting.js";

/** Most leases, settlements or reports of one request. */
export const MOST_TOGETHER = 1000;

type Schemas = components["schemas"];

/** The right to settle one job. The fence grows with every grant, so that a slow worker cannot settle a newer one. */
export type Lease = Readonly<Schemas["LeaseBody"]>;
/** Jobs of a topic: of one task, of none ("": enqueued by the topic's name alone), or all of them (without `task`). */
export type Lane = Schemas["LaneBody"];
/** A job that was granted, as it was then. */
export type ReservedJob = Readonly<Schemas["ReservedJob"]>;
export type Reserve = Schemas["ReserveBody"];
/** Why an attempt errored. */
export type Failure = Schemas["ErrorBody"];
export type Settlement = Schemas["SettleBody"]["settlements"][number];
export type Report = Schemas["ReportBody"];
export type Beat = Schemas["WorkerBody"];

type WithoutLease<Kind> = Kind extends unknown ? Omit<Kind, "id" | "fence" | "run_seconds"> : never;
/** How an attempt ended; with its lease it makes a settlement. */
export type Outcome = WithoutLease<Settlement>;

/** How an attempt ended: as the server was told, or not at all because the job is not ours any more. */
export type Ending = Outcome["outcome"] | "lost";

/** Of a settlement: whether its lease was held; a text where the result could not be kept, and the job failed for that. */
export type Verdict = boolean | string;

/** Seconds that a worker waits for the answer to its farewell. */
const FAREWELL = 2;

/** What can be asked of a server on behalf of a worker. Every call is one try; who calls decides about more. */
export class Protocol {
  private readonly transport: Transport;
  private readonly over: AbortSignal;

  /** When `over` aborts, nobody waits for an answer any more. */
  constructor(transport: Transport, over: AbortSignal) {
    this.transport = transport;
    this.over = over;
  }

  /**
   * Jobs that were due, or became due while the server waited. A repetition with the same id gets the same jobs.
   * `asking` hangs up. `timeout`: seconds for an answer, where the client's are too many.
   */
  async reserve(
    wish: Reserve,
    wait: number,
    requestId: string,
    { asking = new AbortController(), timeout = Infinity }: { asking?: AbortController; timeout?: number } = {},
  ): Promise<readonly ReservedJob[]> {
    const { over } = this;
    if (over.aborted) asking.abort(over.reason);
    const forget = onAbort(over, () => asking.abort(over.reason));
    try {
      const how = { query: { wait }, waits: wait, requestId, signal: asking.signal, timeout };
      return listIn(await this.post<Schemas["Reservation"]>("reserve", wish, how), "jobs");
    } finally {
      forget();
    }
  }

  /** The handlers of these leases (JSON already) have begun; if nothing else runs in the worker, a crash counts as an attempt. */
  async start(leases: readonly string[], requestId: string, alone: boolean): Promise<readonly boolean[]> {
    const text = `{"leases":[${leases.join(",")}],"alone":${alone}}`;
    return listIn(await this.post<Schemas["Held"]>("start", undefined, { text, requestId }), "held", leases.length);
  }

  /** Make leases last so many seconds from now on. */
  async extend(leases: readonly Lease[], lease: number): Promise<Schemas["Extended"]> {
    // A connection that has gone silent must leave time for another try.
    const told = await this.post<Schemas["Extended"]>("extend", { leases, lease }, { timeout: lease / 4 });
    listIn(told, "held", leases.length);
    listIn(told, "cancel_requested", leases.length);
    return told;
  }

  /** Whose cancellation was asked for. */
  async cancellations(leases: readonly Lease[]): Promise<readonly boolean[]> {
    return listIn(await this.post<Schemas["Cancellations"]>("cancellations", { leases }), "cancel_requested", leases.length);
  }

  /** End leases, each as its settlement (JSON already) says. */
  async settle(settlements: readonly string[], requestId: string): Promise<readonly Verdict[]> {
    const text = `{"settlements":[${settlements.join(",")}]}`;
    const told = await this.post<Partial<Schemas["Settled"]>>("settle", undefined, { text, requestId });
    const verdicts: Verdict[] = [...listIn<boolean>(told, "accepted", settlements.length)];
    for (const { index, message } of told.invalid_results ?? []) verdicts[index] = message;
    return verdicts;
  }

  /** Remember progress, checkpoints and steps (JSON already) under their leases. */
  async report(reports: readonly string[], requestId: string): Promise<readonly boolean[]> {
    const text = `{"reports":[${reports.join(",")}]}`;
    return listIn(await this.post<Schemas["Held"]>("report", undefined, { text, requestId }), "held", reports.length);
  }

  /** What earlier runs of the job have finished; undefined when the lease is not held any more. */
  async steps(lease: Lease): Promise<ReadonlyMap<string, unknown> | undefined> {
    const asked = { id: lease.id, fence: lease.fence };
    const told = await this.post<Schemas["Steps"]>("steps", asked);
    const steps = listIn<Schemas["Steps"]["steps"][number]>(told, "steps");
    return told.held ? new Map(steps.map((step) => [step.name, step.output])) : undefined;
  }

  /** Be on the list of workers. */
  async beat(beat: Beat): Promise<void> {
    await this.post("beat", beat);
  }

  /** Be on it no longer. */
  async leave(name: string, startedAt: string): Promise<void> {
    await this.post("leave", { name, started_at: startedAt }, { signal: AbortSignal.timeout(FAREWELL * 1000) });
  }

  /** The store's time; undefined when somebody else answered. */
  async time(): Promise<string | undefined> {
    return (await this.transport.ask<Partial<Schemas["Time"]>>("GET", "/api/jobs/time", { retries: 0, signal: this.over })).now;
  }

  private async post<Answer>(verb: string, body: unknown, wish: Omit<Wish, "body" | "retries"> = {}): Promise<Answer> {
    return this.transport.ask("POST", `/api/jobs/work/${verb}`, { signal: this.over, ...wish, body, retries: 0 });
  }
}

/** A list of an answer, of `length` where that is known. Somebody else may have answered, with JSON of their own. */
function listIn<Item>(answer: unknown, name: string, length?: number): readonly Item[] {
  const list = (answer as Record<string, unknown> | null | undefined)?.[name];
  if (Array.isArray(list) && list.length === (length ?? list.length)) return list;
  throw new ProblemError(200, `the answer has no list "${name}", and is not from Tidewheel; perhaps from a proxy in front of it`);
}
