/** Getting jobs: one long poll at a time, which can be ended without losing what was granted meanwhile. */
import { ConnectionError, NotAuthenticated, ProblemError } from "../errors.js";
import { makeRequestId, pauseBefore, REMEMBERED } from "../transport.js";
import { onAbort, sleep, stopwatch } from "../waiting.js";
import type { Protocol, Reserve, ReservedJob } from "./protocol.js";

/** Seconds that the server is asked to wait for a job: less than proxies wait for an answer, some of them thirty seconds. */
const WAIT = 20;
/** A server that is back has a worker within so many seconds. */
const LONGEST_PAUSE = 5;
/** An empty answer that comes sooner than this many seconds is that of a server that shuts down. */
const EARLY = 1;
/** Seconds in which a worker that is to stop asks what it was granted last, and those for one answer. */
const LAST_ASKS = 4;
const LAST_ANSWER = 2;
/** Seconds between two of these questions, at most. */
const LAST_PAUSE = 1;

export class Reserving {
  private readonly protocol: Protocol;
  private readonly closing: AbortSignal;
  private readonly warn: (message: string) => void;
  private failures = 0;
  /** Whether the last answer was that the token is no good. */
  private unknown = false;
  /** Whether a Tidewheel has answered: what others say in its place is trouble from then on, and no refusal. */
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
    let passed = stopwatch();
    while (!this.closing.aborted) {
      try {
        const jobs = await this.poll(wish, requestId);
        this.answered = true;
        this.unknown = false;
        if (this.failures > 0) this.warn("the server answers again");
        this.failures = 0;
        if (jobs.length === 0 && passed() < EARLY) await this.pause(EARLY);
        return jobs;
      } catch (error) {
        if (this.closing.aborted) break; // nothing is refused to who wants nothing any more
        const isUnknown = error instanceof NotAuthenticated && error.problem !== undefined;
        // A token may have expired while the poll waited. Asked again, with the token of now, a server knows it or not.
        if (isUnknown && !this.unknown) {
          this.unknown = true;
          continue;
        }
        this.unknown = isUnknown;
        if (isRefusal(error, this.answered)) throw error;
        this.failures += 1;
        if (this.failures === 1) this.warn(`no jobs can be reserved; trying again: ${String(error)}`);
        await this.pause(pauseBefore(error, this.failures, LONGEST_PAUSE));
        if (passed() > REMEMBERED) [requestId, passed] = [makeRequestId(), stopwatch()];
      }
    }
    return this.collect(wish, requestId); // the last try broke off, and may have been granted jobs
  }

  /**
   * What the poll under this id was granted: the same request again, without a wait. It is worth some tries: jobs of
   * which nobody here hears are nobody's until their leases end.
   */
  private async collect(wish: Reserve, requestId: string): Promise<readonly ReservedJob[]> {
    const passed = stopwatch();
    for (let failures = 1; passed() < LAST_ASKS; failures += 1) {
      try {
        return await this.protocol.reserve(wish, 0, requestId, { timeout: LAST_ANSWER });
      } catch (error) {
        if (isRefusal(error, true)) break;
        await sleep(pauseBefore(error, failures, LAST_PAUSE));
      }
    }
    return [];
  }

  /**
   * One long poll. The same request again, without a wait, makes the server answer the one that waits; should that not
   * have arrived yet, nobody may be left waiting for what it brings.
   */
  private async poll(wish: Reserve, requestId: string): Promise<readonly ReservedJob[]> {
    const asking = new AbortController();
    let forget = (): void => undefined;
    const ended = new Promise<readonly ReservedJob[]>((resolve) => {
      forget = onAbort(this.closing, () => resolve(this.collect(wish, requestId)));
    });
    try {
      const jobs = await Promise.race([this.protocol.reserve(wish, WAIT, requestId, { asking }), ended]);
      // An empty answer is forgotten at once: a repetition that came after it is a request of its own, and granted jobs.
      return jobs.length === 0 && this.closing.aborted ? await ended : jobs;
    } catch (error) {
      if (!this.closing.aborted) throw error;
      return await ended;
    } finally {
      forget();
      asking.abort();
    }
  }

  private async pause(seconds: number): Promise<void> {
    await sleep(seconds, this.closing).catch(() => undefined); // closing
  }
}

/**
 * Whether asking again makes no sense: the key is not good for it, or the server does not know what is meant. Until a
 * Tidewheel has answered, anything in its place means so, too: the address may be wrong. After that it is a proxy whose
 * server is being replaced, or a token that cannot be had just now.
 */
function isRefusal(error: unknown, answered: boolean): boolean {
  if (error instanceof ConnectionError) return false;
  if (!(error instanceof ProblemError)) return !answered;
  if (answered && error.problem === undefined) return false;
  return error.status < 500 && error.status !== 408 && error.status !== 429;
}
