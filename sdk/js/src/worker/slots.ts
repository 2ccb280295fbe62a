/** The jobs that a worker has at hand: at work in its slots, and on their way back to the server. */
import { onAbort } from "../waiting.js";
import { Attempt, type Workplace } from "./attempt.js";
import type { AnyHandler, HandlerTable } from "./handlers.js";
import type { Held } from "./held.js";
import type { Ending, ReservedJob } from "./protocol.js";
import type { Condition } from "./registrar.js";

/** No more jobs are taken while so many outcomes wait for the server. */
const MOST_UNSETTLED = 1000;
/** Seconds until somebody may have a job again that came to us and that no handler here can run. */
const UNKNOWN_SECONDS = 60;
/** A job that was lost with this many workers runs alone. */
const ALONE_AFTER = 2;
/** Seconds a worker takes no jobs, so that a suspect gets room; doubled each time that this is not enough. */
const FIRST_PATIENCE = 1;
/** A suspect that got no room is given back for this many times the patience, and for this many seconds at most. */
const GIVEN_BACK_FOR = 4;
const LONGEST_GIVEN_BACK = 60;
/** So many names of such jobs are told. */
const MOST_UNKNOWN = 100;

export class Slots {
  readonly held = new Set<Held>();
  private readonly concurrency: number;
  private readonly handlers: HandlerTable;
  private readonly place: Workplace;
  private readonly warn: (message: string) => void;
  /** Handlers that have not ended, those whose jobs were settled without them among them. */
  private occupied = 0;
  private readonly counts = { ran: 0, completed: 0, failed: 0, lost: 0 };
  private readonly unknown = new Set<string>();
  /** Jobs that were lost with a worker and run here: while they do, fewer jobs may run beside them. */
  private readonly suspects = new Set<Held>();
  /** Suspects that wait until enough other handlers have ended. */
  private readonly queue: { held: Held; handler: AnyHandler }[] = [];
  private patience = FIRST_PATIENCE;
  private outOfPatience: ReturnType<typeof setTimeout> | undefined;
  private waiting: (() => void)[] = [];

  constructor(concurrency: number, handlers: HandlerTable, place: Workplace, warn: (message: string) => void) {
    this.concurrency = concurrency;
    this.handlers = handlers;
    this.place = place;
    this.warn = warn;
    onAbort(place.closing, () => {
      while (this.queue.length > 0) this.leaveQueue(0);
      this.changed();
    });
  }

  /** How many jobs could begin now. */
  get free(): number {
    if (this.queue.length > 0) return 0;
    const mostRunning = Math.min(this.concurrency, ...[...this.suspects].map((one) => this.company(one)));
    return Math.max(0, Math.min(mostRunning - this.occupied, this.concurrency + MOST_UNSETTLED - this.held.size));
  }

  /** How many handlers may run while this one does, itself included. */
  private company({ job }: Held): number {
    if (job.losses === 0) return this.concurrency;
    return job.losses >= ALONE_AFTER ? 1 : Math.max(1, Math.floor(this.concurrency / 2));
  }

  get condition(): Omit<Condition, "loop_lag_seconds"> {
    const running = [...this.held].filter((one) => !one.finished).length;
    return { running, claimed: this.held.size - running, stuck: Math.max(0, this.occupied - running), ...this.counts };
  }

  /** Resolves when a slot may have become free, all jobs may be settled, or the worker is told to stop. */
  change(): Promise<void> {
    return new Promise((resolve) => this.waiting.push(resolve));
  }

  /** Run a job, a suspect once there is room for it; or give it back: the worker is to stop, or no handler here knows it. */
  take(held: Held): void {
    const { job } = held;
    this.held.add(held);
    const handler = this.handlers.of(job);
    if (handler === undefined) {
      this.warnOnce(job);
      this.settle(held, this.giveBack(held, UNKNOWN_SECONDS));
    } else if (this.place.closing.aborted) {
      this.settle(held, this.giveBack(held, 0)); // granted while the poll was being ended
    } else if (job.losses > 0) {
      this.queue.push({ held, handler });
      this.startQueue();
    } else {
      this.run(held, handler);
    }
  }

  private run(held: Held, handler: AnyHandler): void {
    held.alone = this.company(held) === 1;
    if (held.job.losses > 0) this.suspects.add(held);
    const attempt = new Attempt(held, handler, this.place);
    this.occupied += 1;
    this.counts.ran += 1;
    this.settle(held, attempt.settled);
    const settled = attempt.settled.catch(() => undefined);
    void settled.then(() => this.suspects.delete(held));
    // Nothing starts before the outcome of a job that ran alone is written: a crash would count for it.
    void attempt.over.then(() => (held.alone && held.startReported ? settled : undefined)).then(() => {
      this.occupied -= 1;
      this.suspects.delete(held);
      this.startQueue();
      this.changed();
    });
  }

  /** Start the suspects for which there is room. The first of the others waits as long as patience lasts. */
  private startQueue(): void {
    for (let first = this.queue[0]; first !== undefined; first = this.queue[0]) {
      if (this.occupied >= this.company(first.held)) {
        this.outOfPatience ??= setTimeout(() => this.giveUpRoom(), this.patience * 1000);
        return;
      }
      this.queue.shift();
      clearTimeout(this.outOfPatience);
      this.outOfPatience = undefined;
      this.patience = FIRST_PATIENCE;
      this.run(first.held, first.handler);
    }
  }

  /** Handlers run for long here: go on with other jobs, and let another worker have the suspect. */
  private giveUpRoom(): void {
    this.leaveQueue(Math.min(GIVEN_BACK_FOR * this.patience, LONGEST_GIVEN_BACK));
    this.patience *= 2;
    this.startQueue();
    this.changed();
  }

  private leaveQueue(delay: number): void {
    clearTimeout(this.outOfPatience);
    this.outOfPatience = undefined;
    const first = this.queue.shift();
    if (first !== undefined) this.settle(first.held, this.giveBack(first.held, delay));
  }

  /** Tell all handlers to stop, for this worker does. */
  stopHandlers(): void {
    for (const one of this.held) one.stop("shutting_down", "the worker shuts down");
  }

  private warnOnce({ id, topic, task }: ReservedJob): void {
    const name = task || topic;
    if (this.unknown.has(name) || this.unknown.size >= MOST_UNKNOWN) return;
    this.unknown.add(name);
    this.warn(`job ${id} (${name}) has no handler here; it is given back, and so are others like it`);
  }

  private async giveBack(held: Held, delay: number): Promise<Ending> {
    held.finished = true;
    const outcome = { outcome: "release", delay, counted: false, taken: false } as const;
    return this.place.reporting.settle(held.lease, outcome, held.job.lease_seconds);
  }

  private settle(held: Held, settled: Promise<Ending>): void {
    const { id } = held.job;
    void settled
      .then(
        (ending) => this.count(ending, id),
        (error: unknown) => this.warn(`the outcome of job ${id} did not reach the server: ${String(error)}`),
      )
      .finally(() => {
        this.held.delete(held);
        this.changed();
      });
  }

  private count(ending: Ending, id: string): void {
    if (ending === "complete") this.counts.completed += 1;
    else if (ending === "retry" || ending === "fail") this.counts.failed += 1;
    else if (ending === "lost") {
      this.counts.lost += 1;
      this.warn(`job ${id} was taken from this worker: its lease ended`);
    }
  }

  private changed(): void {
    for (const resolve of this.waiting.splice(0)) resolve();
  }
}
