/** The jobs that a worker has at hand: at work in its slots, and on their way back to the server. */
import { onAbort } from "../waiting.js";
import { Attempt, type Workplace } from "./attempt.js";
import type { HandlerTable } from "./handlers.js";
import type { Held } from "./held.js";
import type { Ending, ReservedJob } from "./protocol.js";
import type { Condition } from "./registrar.js";

/** No more jobs are taken while so many outcomes wait for the server. */
const MOST_UNSETTLED = 1000;
/** Seconds until somebody may have a job again that came to us and that no handler here can run. */
const UNKNOWN_SECONDS = 60;
/** Seconds until another suspect may have its last chance. */
const LAST_CHANCE_SECONDS = 1;
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
  /** The one suspect whose last attempt runs here: whichever of two killed the worker would take the other's with it. */
  private lastChance: Held | undefined;
  private waiting: (() => void)[] = [];

  constructor(concurrency: number, handlers: HandlerTable, place: Workplace, warn: (message: string) => void) {
    this.concurrency = concurrency;
    this.handlers = handlers;
    this.place = place;
    this.warn = warn;
    onAbort(place.closing, () => this.changed());
  }

  /** How many jobs could begin now. */
  get free(): number {
    return Math.max(0, Math.min(this.concurrency - this.occupied, this.concurrency + MOST_UNSETTLED - this.held.size));
  }

  get condition(): Omit<Condition, "loop_lag_seconds"> {
    const running = [...this.held].filter((one) => !one.finished).length;
    return { running, claimed: this.held.size - running, stuck: Math.max(0, this.occupied - running), ...this.counts };
  }

  /** Resolves when a slot may have become free, all jobs may be settled, or the worker is told to stop. */
  change(): Promise<void> {
    return new Promise((resolve) => this.waiting.push(resolve));
  }

  /** Run a job; or give it back: the worker is to stop, no handler here knows it, or it must not run beside another. */
  take(held: Held): void {
    const { job } = held;
    this.held.add(held);
    const handler = this.handlers.of(job);
    if (handler === undefined) {
      this.warnOnce(job);
      this.settle(held, this.giveBack(held, UNKNOWN_SECONDS));
    } else if (this.place.closing.aborted) {
      this.settle(held, this.giveBack(held, 0)); // granted while the poll was being ended
    } else if (isLastChance(held) && this.lastChance !== undefined) {
      this.settle(held, this.giveBack(held, LAST_CHANCE_SECONDS));
    } else {
      if (isLastChance(held)) this.lastChance = held;
      const attempt = new Attempt(held, handler, this.place);
      this.occupied += 1;
      this.counts.ran += 1;
      this.settle(held, attempt.settled);
      void attempt.over.then(() => {
        this.occupied -= 1;
        if (this.lastChance === held) this.lastChance = undefined;
        this.changed();
      });
    }
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

/** A job that was lost with a worker before, and fails if this one is lost, too. */
function isLastChance({ job, lastAttempt }: Held): boolean {
  return job.alone && lastAttempt;
}
