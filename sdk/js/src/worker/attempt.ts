/** One attempt: call the handler, turn what happened into an outcome, have it settled. */
import { milliseconds } from "../waiting.js";
import { Context } from "./context.js";
import type { AnyHandler } from "./handlers.js";
import type { Held } from "./held.js";
import { afterError, afterReturn, afterStop } from "./outcomes.js";
import type { Ending, Outcome, ReservedJob } from "./protocol.js";
import type { Reporting } from "./reporting.js";

/** A handler that has run for so many seconds gets its start recorded; most are done before. */
const START_AFTER = 0.25;
/** Seconds that a handler has to end when it is told to stop. After that its job is settled without it. */
const STOP_SECONDS = 1;

export interface Workplace {
  readonly name: string;
  readonly reporting: Reporting;
  /** Aborts when the worker is told to stop. */
  readonly closing: AbortSignal;
  /** Told of every attempt that errors, with what it was. Never throws. */
  readonly onError: (error: unknown, job: ReservedJob) => void;
}

export class Attempt {
  /** Resolves when the job is settled or lost. */
  readonly settled: Promise<Ending>;
  /** Resolves when the handler has ended, which may be later: nobody can end it from outside. */
  readonly over: Promise<void>;
  private readonly held: Held;
  private readonly place: Workplace;
  private readonly timers: ReturnType<typeof setTimeout>[] = [];
  /** What the handler threw. */
  private thrown: unknown;

  constructor(held: Held, handler: AnyHandler, place: Workplace) {
    this.held = held;
    this.place = place;
    const began = performance.now();
    const running = Promise.resolve().then(() => this.begin(handler));
    this.over = running.then(() => undefined);
    this.settled = this.settle(running, began);
  }

  /** What the handler did, as an outcome. Never rejects. */
  private async begin(handler: AnyHandler): Promise<Outcome | undefined> {
    const { held, place } = this;
    const { job } = held;
    try {
      if (held.startsRecorded && !(await place.reporting.start(held))) held.lose();
      // A handler that began just before may have blocked the event loop since.
      if (performance.now() >= held.endsAt) held.lose();
      const before = held.whyStopped();
      if (before !== undefined) return afterStop(before);
      if (!held.startsRecorded) this.timers.push(setTimeout(() => void this.recordStart(), START_AFTER * 1000));
      if (job.timeout !== null) {
        const late = (): void => held.stop("timeout", `the handler ran longer than its timeout of ${job.timeout} s`);
        this.timers.push(setTimeout(late, milliseconds(job.timeout)));
      }
      const value = await handler(job.payload as never, new Context(held, place.name, place.reporting, place.closing));
      const stopped = held.whyStopped();
      if (stopped?.reason === "lease_lost" || stopped?.reason === "timeout") return afterStop(stopped);
      return afterReturn(value); // a handler that finished although it was asked to stop has finished
    } catch (error) {
      this.thrown = error;
      const stopped = held.whyStopped();
      return stopped === undefined ? afterError(error) : afterStop(stopped);
    }
  }

  private async recordStart(): Promise<void> {
    try {
      if (!(await this.place.reporting.start(this.held)) && !this.held.finished) this.held.lose();
    } catch {
      // The worker ends while the server is away: there is nobody to tell.
    }
  }

  private async settle(running: Promise<Outcome | undefined>, began: number): Promise<Ending> {
    const { held, place } = this;
    let patience: ReturnType<typeof setTimeout> | undefined;
    const givenUp = new Promise<Outcome | undefined>((resolve) => {
      held.hurry = () => {
        const stopped = held.whyStopped();
        if (stopped !== undefined) patience ??= setTimeout(() => resolve(afterStop(stopped)), STOP_SECONDS * 1000);
      };
    });
    const outcome = await Promise.race([running, givenUp]);
    held.finished = true;
    clearTimeout(patience);
    this.timers.forEach(clearTimeout); // those of a handler that goes on would keep the process from ending
    if (outcome === undefined) return "lost";
    const seconds = (performance.now() - began) / 1000;
    const errored = (error: unknown): void => place.onError(error, held.job);
    // One that ran out of time errors for that reason, whatever it threw when it was told so, if it did.
    if (outcome.outcome === "retry" || outcome.outcome === "fail") errored(held.whyStopped() ?? this.thrown);
    return place.reporting.settle(held.lease, outcome, held.job.lease_seconds, seconds, errored);
  }
}
