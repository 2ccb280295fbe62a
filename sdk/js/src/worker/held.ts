/** One job that this worker holds, from its grant to its settlement. */
import type { Lease, ReservedJob } from "./protocol.js";
import { Stopped, type StopReason } from "./stopping.js";

export class Held {
  readonly job: ReservedJob;
  readonly lease: Lease;
  /** When the lease has ended for all we know, on the clock of `performance`. */
  endsAt: number;
  /** When it is time to extend it. */
  extendAt: number;
  /** Whether its handler has ended and its outcome is known; it is held until that is settled. */
  finished = false;
  /** Whether nothing else runs in this worker meanwhile: then a crash counts as an attempt. */
  alone = false;
  /** Whether the server was told that it has begun. */
  startReported = false;
  /** Called when nobody can wait much longer for the handler. */
  hurry = (): void => undefined;
  private readonly controller = new AbortController();

  constructor(job: ReservedJob, now: number) {
    this.job = job;
    this.lease = { id: job.id, fence: job.fence }; // and nothing else, as the server wants it
    this.endsAt = this.extendAt = 0;
    this.leaseLasts(job.lease_left, now);
  }

  get signal(): AbortSignal {
    return this.controller.signal;
  }

  /** Why its handler was told to stop; the first word counts. */
  whyStopped(): Stopped | undefined {
    return this.signal.reason as Stopped | undefined;
  }

  /** Whether it loses an attempt if this worker dies: nothing else ran, or the job must not start twice. */
  get chargedIfLost(): boolean {
    return this.alone || this.job.max_attempts === 1;
  }

  get lastAttempt(): boolean {
    return this.job.max_attempts !== null && this.job.attempt >= this.job.max_attempts;
  }

  /** Whether its start is recorded before its handler runs: a crash must not repeat it for ever. */
  get startsRecorded(): boolean {
    return this.lastAttempt || this.job.losses > 0;
  }

  /** The lease lasts so many seconds from `since`. It is extended when a third of its length has gone. */
  leaseLasts(seconds: number, since: number): void {
    this.endsAt = since + seconds * 1000;
    this.extendAt = this.endsAt - (this.job.lease_seconds * 1000 * 2) / 3;
  }

  /** Tell the handler to stop. One whose job was cancelled may take its time: it holds its lease. */
  stop(reason: StopReason, message: string): void {
    if (!this.signal.aborted) this.controller.abort(new Stopped(reason, message));
    if (reason !== "cancelled" && !this.finished) this.hurry();
  }

  lose(): void {
    this.stop("lease_lost", `the lease of job ${this.job.id} (fence ${this.job.fence}) has ended`);
  }
}
