/** Getting jobs: one long poll at a time, which can be ended without losing what was granted meanwhile. */
import { ConnectionError, ProblemError } from "../errors.js";
import { makeRequestId, pauseBefore, REMEMBERED } from "../transport.js";
import { onAbort, sleep } from "../waiting.js";
import type { Protocol, Reserve, ReservedJob } from "./protocol.js";

/** Seconds that the server is asked to wait for a job. */
const WAIT = 30;
/** A server that is back has a worker within so many seconds. */
const LONGEST_PAUSE = 5;
/** An empty answer that comes sooner than this many seconds is that of a server that shuts down. */
const EARLY = 1;

export class Reserving {
  private readonly protocol: Protocol;
  private readonly closing: AbortSignal;
  private readonly warn: (message: string) => void;
  private failures = 0;
  /** Whether a Windlass has answered: what others say in its place is trouble from then on, and no refusal. */
  private answered = false;

  /** `closing` ends the poll that is under way, and there are no others after that. */
  constructor(protocol: Protocol, closing: AbortSignal, warn: (message: string) => void) {
    this.protocol = protocol;
    this.closing = closing;
    this.warn = warn;
  }

  /** Some jobs; none after a while, or once it is closing. Throws when the server refuses. */
  async next(wish: Reserve): Promise<readonly ReservedJob[]> {
    let requestId = makeRequestId();
    let asked = performance.now();
    while (!this.closing.aborted) {
      try {
        const jobs = await this.poll(wish, requestId);
        this.answered = true;
        if (this.failures > 0) this.warn("the server answers again");
        this.failures = 0;
        if (jobs.length === 0 && performance.now() - asked < EARLY * 1000) await this.pause(EARLY);
        return jobs;
      } catch (error) {
        if (this.closing.aborted) break; // nothing is refused to who wants nothing any more
        if (isRefusal(error, this.answered)) throw error;
        this.failures += 1;
        if (this.failures === 1) this.warn(`no jobs can be reserved; trying again: ${String(error)}`);
        await this.pause(pauseBefore(error, this.failures, LONGEST_PAUSE));
        if (performance.now() - asked > REMEMBERED * 1000) [requestId, asked] = [makeRequestId(), performance.now()];
      }
    }
    // The last try broke off, and may have been granted jobs. If the server cannot be asked, others have them in time.
    return this.protocol.reserve(wish, 0, requestId).catch(() => []);
  }

  /**
   * One long poll. The same request again, without a wait, makes the server answer the one that waits; should that not
   * have arrived yet, nobody may be left waiting for what it brings.
   */
  private async poll(wish: Reserve, requestId: string): Promise<readonly ReservedJob[]> {
    const polling = new AbortController();
    let forget = (): void => undefined;
    const ended = new Promise<readonly ReservedJob[]>((resolve) => {
      forget = onAbort(this.closing, () => resolve(this.protocol.reserve(wish, 0, requestId)));
    });
    try {
      const jobs = await Promise.race([this.protocol.reserve(wish, WAIT, requestId, polling), ended]);
      // An empty answer is forgotten at once: a repetition that came after it is a request of its own, and granted jobs.
      return jobs.length === 0 && this.closing.aborted ? await ended : jobs;
    } finally {
      forget();
      polling.abort();
    }
  }

  private async pause(seconds: number): Promise<void> {
    await sleep(seconds, this.closing).catch(() => undefined); // closing
  }
}

/**
 * Whether asking again makes no sense: the key is not good for it, or the server does not know what is meant. Until a
 * Windlass has answered, anything in its place means so, too: the address may be wrong. After that it is a proxy whose
 * server is being replaced, or a token that cannot be had just now.
 */
function isRefusal(error: unknown, answered: boolean): boolean {
  if (error instanceof ConnectionError) return false;
  if (!(error instanceof ProblemError)) return !answered;
  if (answered && error.problem === undefined) return false;
  return error.status < 500 && error.status !== 408 && error.status !== 429;
}
