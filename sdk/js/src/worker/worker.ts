/** Takes jobs of a server and runs their handlers, until it is told to stop. */
import type { Client } from "../client.js";
import { ConnectionError } from "../errors.js";
import { checkNumbers } from "../sendable.js";
import type { AnyTasks, TaskMap } from "../tasks.js";
import { makeRequestId } from "../transport.js";
import { milliseconds } from "../waiting.js";
import { hostName, onStopSignals, processId } from "./environment.js";
import { HandlerTable, type Handlers } from "./handlers.js";
import { Keeper } from "./keeper.js";
import { guarded, guardedWarn } from "./listeners.js";
import { Protocol, type Lane, type ReservedJob } from "./protocol.js";
import { Registrar } from "./registrar.js";
import { Reporting } from "./reporting.js";
import { Reserving } from "./reserving.js";
import { Slots } from "./slots.js";

const MOST_CONCURRENCY = 1000;
/** Seconds that running handlers have to finish, unless told. */
const GRACE = 30;
/** Seconds that outcomes have to reach the server after handlers were told to stop. */
const LAST_SECONDS = 10;

export interface WorkerOptions<Tasks extends TaskMap<Tasks>> {
  /** What runs the jobs of which task. */
  handlers: Handlers<Tasks>;
  /** Jobs at a time, 1 to 1,000; 10 unless told. */
  concurrency?: number;
  /** Only jobs of these topics; of all topics that the handlers live on unless told. */
  topics?: readonly string[];
  /** Exactly these lanes, in place of those that follow from the handlers. */
  lanes?: readonly Lane[];
  /** Seconds that a job stays ours without a word, 2 to 86,400; the server's setting unless told. */
  lease?: number;
  /** Its name in the list of workers and on its jobs; made up unless told. */
  name?: string;
  /** Seconds that running handlers have to finish when it is stopped; 30 unless told. */
  grace?: number;
  /** Stop on SIGINT and SIGTERM, and at once on the second. For Node; false unless told. */
  handleSignals?: boolean;
  /** What a person should know; `console.warn` unless told. */
  warn?: (message: string) => void;
  /**
   * Told of every attempt that errors, with what was thrown, before it is tried again or fails: for logs and whoever
   * gathers errors. Jobs that are given back, cancelled or lost are none of its business.
   */
  onError?: (error: unknown, job: ReservedJob) => void;
}

export interface StopOptions {
  /** Seconds that running handlers have to finish; as the worker was told. */
  grace?: number;
}

/**
 * A worker.
 *
 *     const worker = new Worker(client, { handlers: { send_digest: async ({ user_id }, context) => 1 } });
 *     await worker.run();
 */
export class Worker<Tasks extends TaskMap<Tasks> = AnyTasks> {
  readonly name: string;
  private readonly options: WorkerOptions<Tasks>;
  private readonly handlers: HandlerTable;
  private readonly protocol: Protocol;
  private readonly slots: Slots;
  private readonly warn: (message: string) => void;
  /** Aborts when it is told to stop. */
  private readonly closing = new AbortController();
  /** Aborts when nothing is left to be said, or nobody is left to say it to. */
  private readonly over = new AbortController();
  /** Whether somebody told it to; it may be closing because the server refused. */
  private told = false;
  /** Whether the last while has begun. */
  private hurried = false;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private ended: Promise<void> | undefined;

  constructor(client: Client<Tasks>, options: WorkerOptions<Tasks>) {
    const { concurrency = 10, handlers, topics, lanes, name, lease, grace } = options;
    if (!(Number.isInteger(concurrency) && concurrency >= 1 && concurrency <= MOST_CONCURRENCY)) {
      throw new RangeError(`concurrency is ${concurrency}; 1 to ${MOST_CONCURRENCY} are possible`);
    }
    checkNumbers({ lease });
    checkGrace(grace);
    this.options = { ...options, concurrency };
    this.name = name ?? `${hostName()}-${processId()}-${makeRequestId().slice(0, 4)}`;
    this.warn = guardedWarn(options.warn ?? ((message) => console.warn(`tidewheel worker ${this.name}: ${message}`)));
    this.handlers = new HandlerTable(handlers as never, topics, lanes);
    this.protocol = new Protocol(client.transport, this.over.signal);
    const reporting = new Reporting(this.protocol, this.over.signal);
    const onError = guarded(options.onError, this.warn);
    const place = { name: this.name, reporting, closing: this.closing.signal, onError };
    this.slots = new Slots(concurrency, this.handlers, place, this.warn);
  }

  /** Run jobs until stopped. Rejects when the server refuses to give any, after what runs has ended. */
  run(): Promise<void> {
    if (this.ended !== undefined) throw new TypeError("the worker was started before; make another one");
    const working = this.work();
    this.ended = working.catch(() => undefined);
    return working;
  }

  /**
   * Take no more jobs, and let running handlers finish. Those that have not after `grace` seconds are told to stop, and
   * their jobs are given back, which counts as no attempt; a second call does that at once. Resolves when all has ended.
   */
  async stop({ grace = this.options.grace ?? GRACE }: StopOptions = {}): Promise<void> {
    checkGrace(grace);
    this.close(this.told ? 0 : grace);
    this.told = true;
    await this.ended;
  }

  private close(grace: number): void {
    this.closing.abort();
    if (this.ended === undefined || this.hurried || this.over.signal.aborted) return; // it never began, or is ending, or has
    clearTimeout(this.timer);
    if (grace > 0) this.timer = setTimeout(() => this.hurry(), milliseconds(grace));
    else this.hurry();
  }

  /** The grace is over: handlers stop now, and the server has a last while to hear of it. */
  private hurry(): void {
    if (this.hurried || this.over.signal.aborted) return;
    this.hurried = true; // it is told once: who goes on asking must not make the last while longer
    clearTimeout(this.timer);
    this.slots.stopHandlers();
    const late = new ConnectionError(`no answer came in the ${LAST_SECONDS} s that a worker has for it at its end`);
    this.timer = setTimeout(() => this.over.abort(late), LAST_SECONDS * 1000);
  }

  private async work(): Promise<void> {
    const forget = this.options.handleSignals ? onStopSignals(() => void this.stop()) : undefined;
    const keeper = new Keeper(this.protocol, this.slots.held, this.over.signal, this.warn);
    const registrar = new Registrar(this.protocol, this.name, this.handlers.lanes, this.options.concurrency ?? 0);
    const condition = () => ({ ...this.slots.condition, loop_lag_seconds: keeper.takeLag() });
    const beside = [keeper.run(), registrar.run(condition, this.over.signal)];
    try {
      await this.takeJobs(keeper);
    } finally {
      if (!this.closing.signal.aborted) this.close(this.options.grace ?? GRACE); // the server refused: end as if told to
      while (this.slots.held.size > 0) await this.slots.change();
      clearTimeout(this.timer);
      this.over.abort();
      await Promise.all(beside);
      await registrar.leave();
      forget?.();
    }
  }

  private async takeJobs(keeper: Keeper): Promise<void> {
    const { signal } = this.closing;
    const { lease } = this.options;
    const reserving = new Reserving(this.protocol, signal, this.warn);
    while (!signal.aborted) {
      const { free } = this.slots;
      if (free === 0) {
        await this.slots.change();
        continue;
      }
      const how = { free, reports_starts: true, ...(lease !== undefined && { lease }) };
      const wish = { lanes: this.handlers.lanes, limit: free, worker: this.name, ...how };
      for (const held of await keeper.received(await reserving.next(wish))) this.slots.take(held);
    }
  }
}

function checkGrace(grace = GRACE): void {
  if (Number.isNaN(grace)) throw new RangeError("grace is NaN; give seconds, or leave it out");
}
