/** Keeps leases alive while their handlers run, and asks whether any of the jobs is to be cancelled. */
import { pauseAfter, sleep } from "../waiting.js";
import { Held } from "./held.js";
import { MOST_TOGETHER, type Protocol, type ReservedJob } from "./protocol.js";

/** Seconds between two looks at most: a job that comes meanwhile must be looked at before a third of its lease is over. */
const LONGEST_TICK = 0.2;
const SHORTEST_TICK = 0.05;
/** Seconds between two questions about cancellations. */
const ASK = 1;
/** Seconds between two tries to extend leases while that fails, at first and at most; for short leases less. */
const FIRST_PAUSE = 0.1;
const LONGEST_PAUSE = 1;

export class Keeper {
  private readonly protocol: Protocol;
  private readonly held: ReadonlySet<Held>;
  private readonly over: AbortSignal;
  private readonly warn: (message: string) => void;
  private extending = false;
  private asking = false;
  /** How often leases could not be extended, in a row. */
  private failures = 0;
  /** Until then that is not tried again. */
  private restsUntil = 0;
  private lag = 0;
  /** When the event loop was seen to run, the last time and the one before. */
  private seen: [before: number, last: number] = [performance.now(), performance.now()];

  constructor(protocol: Protocol, held: ReadonlySet<Held>, over: AbortSignal, warn: (message: string) => void) {
    this.protocol = protocol;
    this.held = held;
    this.over = over;
    this.warn = warn;
  }

  /** The longest that this process let a timer wait, in seconds, since this was asked before. */
  takeLag(): number {
    const { lag } = this;
    this.lag = 0;
    return lag;
  }

  /**
   * Those of the jobs that have just come which are still ours. Somebody may have blocked the event loop while their answer
   * lay in its socket: their leases count from the last tick but one, for the last may be later than that, and whatever is
   * in doubt by that is extended before it begins.
   */
  async received(jobs: readonly ReservedJob[]): Promise<readonly Held[]> {
    const [since] = this.seen;
    const came = jobs.map((job) => new Held(job, since));
    const late = came.filter((one) => one.extendAt <= performance.now());
    await this.extendAll(late).catch(() => undefined); // then what is known has to do
    const ours = came.filter((one) => !isLost(one) && performance.now() < one.endsAt);
    const lost = came.length - ours.length;
    if (lost > 0) this.warn(`of ${came.length} jobs that came ${lost} were lost: the event loop was blocked for longer than their leases`);
    return ours;
  }

  /** Until it is over. */
  async run(): Promise<void> {
    let askAt = 0;
    while (!this.over.aborted) {
      const before = performance.now();
      this.seen = [this.seen[1], before];
      const due = Math.max(Math.min(...[...this.held].map((one) => one.extendAt)), this.restsUntil) - before;
      const tick = Math.max(SHORTEST_TICK, Math.min(due / 1000, LONGEST_TICK));
      await sleep(tick, this.over).catch(() => undefined); // over
      const now = performance.now();
      this.lag = Math.max(this.lag, (now - before) / 1000 - tick);
      for (const one of this.held) if (now >= one.endsAt && !one.finished) one.lose();
      if (!this.extending && now >= this.restsUntil) void this.extend(now);
      if (now >= askAt) {
        askAt = now + ASK * 1000;
        void this.ask();
      }
    }
  }

  private async extend(now: number): Promise<void> {
    const due = [...this.held].filter((one) => one.extendAt <= now && !isLost(one)).slice(0, MOST_TOGETHER);
    if (due.length === 0) return;
    this.extending = true;
    try {
      await this.extendAll(due);
      if (this.failures > 0) this.warn("leases can be extended again");
      this.failures = 0;
    } catch (error) {
      this.failures += 1;
      const shortest = Math.min(...due.map((one) => one.job.lease_seconds));
      const pause = pauseAfter(this.failures, FIRST_PAUSE, Math.min(LONGEST_PAUSE, shortest / 8));
      this.restsUntil = performance.now() + pause * 1000;
      if (this.failures === 1 && !this.over.aborted) this.warn(`leases could not be extended; trying again: ${String(error)}`);
    } finally {
      this.extending = false;
    }
  }

  private async extendAll(some: readonly Held[]): Promise<void> {
    for (const seconds of new Set(some.map((one) => one.job.lease_seconds))) {
      await this.extendBy(seconds, some.filter((one) => one.job.lease_seconds === seconds));
    }
  }

  private async extendBy(seconds: number, some: readonly Held[]): Promise<void> {
    const asked = performance.now();
    const { held, cancel_requested } = await this.protocol.extend(leasesOf(some), seconds);
    some.forEach((one, place) => {
      if (held[place]) one.leaseLasts(seconds, asked); // from when it was asked for: never too long
      else if (!one.finished) one.lose(); // otherwise its outcome is on its way, and ended the lease perhaps
      if (cancel_requested[place]) cancel(one);
    });
  }

  private async ask(): Promise<void> {
    const running = [...this.held].filter((one) => !one.finished && !one.signal.aborted).slice(0, MOST_TOGETHER);
    if (running.length === 0 || this.asking) return; // a server that hangs is not asked by more and more
    this.asking = true;
    try {
      const wanted = await this.protocol.cancellations(leasesOf(running));
      running.forEach((one, place) => wanted[place] && cancel(one));
    } catch {
      // The server is away. The keeper says so when it extends, and this is asked again in a second.
    } finally {
      this.asking = false;
    }
  }
}

function leasesOf(some: readonly Held[]): { id: string; fence: number }[] {
  return some.map((one) => one.lease);
}

function isLost(one: Held): boolean {
  return one.whyStopped()?.reason === "lease_lost";
}

function cancel(one: Held): void {
  one.stop("cancelled", "cancelled on request");
}
