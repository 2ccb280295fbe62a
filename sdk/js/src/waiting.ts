/** Waiting: for some time, for longer each time, and not at all once somebody aborts. */

/** The longest that a timer can wait; a longer one would end at once. */
const LONGEST_TIMER = 2 ** 31 - 1;

/** Seconds as timers take them. */
export function milliseconds(seconds: number): number {
  return Math.min(seconds * 1000, LONGEST_TIMER);
}

interface Waiting {
  readonly calls: Set<() => void>;
  readonly listener: () => void;
}

/** Who waits for which signal. One listener each: Node warns of a leak when there are more than ten. */
const waiting = new WeakMap<AbortSignal, Waiting>();

/** Calls `call` when the signal aborts, unless what is returned was called before. Not for one that has aborted. */
export function onAbort(signal: AbortSignal, call: () => void): () => void {
  const mine = waiting.get(signal) ?? listen(signal);
  mine.calls.add(call);
  return () => {
    mine.calls.delete(call);
    if (mine.calls.size > 0 || waiting.get(signal) !== mine) return;
    waiting.delete(signal);
    signal.removeEventListener("abort", mine.listener); // one with a listener is kept in memory until it aborts
  };
}

function listen(signal: AbortSignal): Waiting {
  const calls = new Set<() => void>();
  const made = { calls, listener: (): void => calls.forEach((one) => one()) };
  waiting.set(signal, made);
  signal.addEventListener("abort", made.listener, { once: true });
  return made;
}

/** Tells how many seconds have passed. The clock of `performance` may stand still while a machine sleeps. */
export function stopwatch(): () => number {
  const [began, date] = [performance.now(), Date.now()];
  return () => Math.max(performance.now() - began, Date.now() - date) / 1000;
}

/** Resolves after so many seconds; rejects with the signal's reason as soon as it aborts. */
export function sleep(seconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(signal.reason);
      return;
    }
    const timer = setTimeout(() => {
      forget?.();
      resolve();
    }, milliseconds(seconds));
    const forget =
      signal &&
      onAbort(signal, () => {
        clearTimeout(timer);
        reject(signal.reason);
      });
  });
}

/** What is asked for; or the signal's reason, as soon as it aborts, of what takes no signal itself. */
export function orAborted<Answer>(asked: Promise<Answer>, signal: AbortSignal): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const forget = signal.aborted ? undefined : onAbort(signal, () => reject(signal.reason));
    if (signal.aborted) reject(signal.reason);
    void asked.then(resolve, reject).finally(forget);
  });
}

/** How long to wait after so many failures in a row: twice as long each time, and never quite the same. */
export function pauseAfter(failures: number, first: number, longest: number): number {
  const nominal = Math.min(longest, first * 2 ** Math.min(failures - 1, 16));
  return nominal * (0.5 + Math.random() / 2);
}

/** A signal that aborts when the given one does, or after so many seconds; `release` lets go of timer and listener. */
export function deadline(seconds: number, reason: () => unknown, signal?: AbortSignal): Deadline {
  const controller = new AbortController();
  if (signal?.aborted) controller.abort(signal.reason);
  const forget = signal && onAbort(signal, () => controller.abort(signal.reason));
  let timer: ReturnType<typeof setTimeout> | undefined;
  const rest = (): void => clearTimeout(timer);
  const again = (): void => {
    rest();
    // What is longer than any timer is no limit: cut to one, it would end what was to go on.
    if (seconds * 1000 <= LONGEST_TIMER) timer = setTimeout(() => controller.abort(reason()), seconds * 1000);
  };
  again();
  const release = (): void => {
    rest();
    forget?.();
  };
  return { signal: controller.signal, again, rest, release, abort: () => controller.abort() };
}

export interface Deadline {
  readonly signal: AbortSignal;
  /** Begins the time anew. */
  again(): void;
  /** Stops the time until it begins anew. */
  rest(): void;
  release(): void;
  abort(): void;
}
