/**
 * The run of one attempt, as its handler sees it.
 *
 * Its calls can be taken out of it: `async (payload, { progress, signal }) => …`.
 */
import { LeaseLost } from "../errors.js";
import { storable } from "../json.js";
import { orAborted } from "../waiting.js";
import { Released } from "./directives.js";
import type { Held } from "./held.js";
import type { Report, ReservedJob } from "./protocol.js";
import type { Reporting } from "./reporting.js";
import { Steps } from "./steps.js";

export class Context {
  /** The job as it was when it was granted, with its payload. */
  readonly job: ReservedJob;
  /** The name of the worker that runs it. */
  readonly worker: string;
  /** What an earlier attempt left for this one, or this one saved last; undefined when there is nothing. */
  lastCheckpoint: unknown;
  private readonly held: Held;
  private readonly reporting: Reporting;
  private readonly closing: AbortSignal;
  private readonly steps: Steps;

  constructor(held: Held, worker: string, reporting: Reporting, closing: AbortSignal) {
    this.job = held.job;
    this.worker = worker;
    this.lastCheckpoint = held.job.checkpoint;
    this.held = held;
    this.reporting = reporting;
    this.closing = closing;
    this.steps = new Steps(
      () => this.unlessStopped(reporting.steps(held.lease)).then((found) => found ?? this.lost()),
      (step) => this.keep({ ...held.lease, step }),
    );
  }

  /** Which attempt this is, from 1. */
  get attempt(): number {
    return this.job.attempt;
  }

  /** Whether an error now would fail the job. */
  get lastAttempt(): boolean {
    return this.held.lastAttempt;
  }

  /**
   * Aborts when the handler should stop; hand it to `fetch` and to whatever else takes one. Its reason is a `Stopped`,
   * whose `reason` is "cancelled", "lease_lost", "timeout" or "shutting_down".
   */
  get signal(): AbortSignal {
    return this.held.signal;
  }

  /** True once the worker has been told to stop; a good moment to save a checkpoint and `release`. */
  get shuttingDown(): boolean {
    return this.closing.aborted;
  }

  /** Tell everybody who looks how far this is. Throws `LeaseLost` when this run lost the job. */
  readonly progress = (percent: number, message?: string, stage?: string): Promise<void> =>
    heeded(this.tell(percent, message, stage));

  /** Save `data` (JSON) durably, for a later attempt to go on from. Throws `LeaseLost` when this run lost the job. */
  readonly checkpoint = (data: unknown): Promise<void> => heeded(this.save(data));

  /**
   * Run `work` as a step of this job, or answer what it returned in an earlier run. What it returns (JSON) is saved
   * first; a step that throws is not saved. Every step of a run needs a name of its own.
   */
  readonly step = <Output>(name: string, work: () => Output | Promise<Output>): Promise<Output> =>
    heeded(this.steps.run(name, work));

  /** Give the job back now: another run starts in `delay` seconds, this one is not counted as an attempt. */
  readonly release = (delay = 0): never => {
    throw new Released(delay);
  };

  private async tell(percent: number, message?: string, stage?: string): Promise<void> {
    if (!(percent >= 0 && percent <= 100)) throw new RangeError(`percent is ${percent}; 0 to 100 are possible`);
    const words = { ...(message !== undefined && { message }), ...(stage !== undefined && { stage }) };
    const progress = { percent: Math.floor(percent * 100) / 100, ...words };
    if (!(await this.unlessStopped(this.reporting.tell({ ...this.held.lease, progress })))) this.lost();
  }

  private async save(data: unknown): Promise<void> {
    storable("the checkpoint", data); // or it throws
    await this.keep({ ...this.held.lease, checkpoint: data ?? null });
    this.lastCheckpoint = data;
  }

  private async keep(report: Report): Promise<void> {
    if (!(await this.unlessStopped(this.reporting.report(report, this.job.lease_seconds)))) this.lost();
  }

  private lost(): never {
    this.held.lose();
    throw new LeaseLost(this.job.id, this.job.fence);
  }

  /** The answer, unless the handler is to stop before it comes: one who waits for a server that is away can still end. */
  private unlessStopped<Answer>(asked: Promise<Answer>): Promise<Answer> {
    const { signal } = this.held;
    // A stop that is a while ago is known to the handler, which may have something left to save.
    return signal.aborted ? asked : orAborted(asked, signal);
  }
}

/**
 * The same promise. One that nobody waits for, or not yet (two steps begun together, and the first throws), is refused
 * when its job is to stop: that must not end the process, and the jobs beside it.
 */
function heeded<Answer>(asked: Promise<Answer>): Promise<Answer> {
  asked.catch(() => undefined);
  return asked;
}
