/**
 * What happens in a queue, as it happens. A stream that breaks off is taken up again after the last event that came.
 *
 * Over fetch and not over EventSource, which cannot send a token.
 */
import { ConnectionError, ProblemError, TidewheelError } from "./errors.js";
import { readJson } from "./json.js";
import { serverEvents } from "./server_events.js";
import type { TimelineEntry } from "./shapes.js";
import { mayPass, pauseBefore, type CallOptions, type Transport } from "./transport.js";
import { deadline, sleep, stopwatch } from "./waiting.js";

/** The server says something every 15 s; after so many seconds without a word the connection is dead. */
const SILENCE = 45;
const LONGEST_PAUSE = 30;
/** Seconds after which a stream that still says something works, however quiet it is. One that is cut at once does not. */
const STEADY = 1;

/** A topic's counts after they changed. */
export interface TopicEvent {
  topic: string;
  pending: number;
  running: number;
  completed: number;
  failed: number;
  cancelled: number;
  /** While it is paused. */
  paused_until?: string;
}

/** What happened to a job since the event before. */
export interface JobEvent {
  id: string;
  topic: string;
  task?: string;
  /** Derived states included: claimed, delayed, retrying, blocked. */
  state: string;
  attempt: number;
  entries: TimelineEntry[];
  /** For superusers. */
  tenant?: string;
}

/**
 * One event. `reset`: events were missed, read again what you show. `trouble` and `recovered`: the store cannot be
 * reached, and can again. `gone`: the job was deleted, or is not to be seen any more. `end`: all jobs have finished.
 */
export type QueueEvent =
  | { id: string; event: "topic"; data: TopicEvent }
  | { id: string; event: "job"; data: JobEvent }
  | { id: string; event: "gone"; data: { id: string } }
  | { id: string; event: "end" | "reset" | "trouble" | "recovered"; data: { detail: string } };

export interface EventOptions extends CallOptions {
  /** Counts of these topics only, up to 100. */
  topic?: string | readonly string[];
  /** Everything about these jobs, up to 20, instead of topics. */
  job?: string | readonly string[];
  /** Of one tenant's jobs; for superusers, who hear of all otherwise. */
  tenant?: string;
  /** Go on after this event. */
  lastEventId?: string;
}

/** Events until the last one (`end`), until the loop is left, or until `signal` aborts. */
export async function* events(transport: Transport, options: EventOptions): AsyncGenerator<QueueEvent> {
  const query = { topic: options.topic, job: options.job, tenant: options.tenant };
  let last = options.lastEventId;
  let failures = 0;
  let opened = false;
  for (;;) {
    const silent = (): ConnectionError => new ConnectionError(`the stream of events was silent for ${SILENCE} s`);
    const limit = deadline(SILENCE, silent, options.signal);
    const passed = stopwatch();
    const heard = (): void => {
      if (passed() >= STEADY) failures = 0;
      limit.again();
    };
    try {
      const headers = { Accept: "text/event-stream", ...(last !== undefined && { "Last-Event-ID": last }) };
      const { body } = await transport.open("/api/jobs/events", query, headers, limit.signal);
      opened = true;
      if (body !== null) {
        for await (const { id, event, data } of serverEvents(body, heard, (at) => (last = at))) {
          options.signal?.throwIfAborted(); // several may have come together
          failures = 0;
          limit.rest(); // however long it is worked on: nobody listens meanwhile, and that is no silence
          yield { id, event, data: read(data) } as QueueEvent;
          if (event === "end") return;
          limit.again();
        }
      }
      failures += 1;
      // The server ended it: it stops, or access has changed, which the next try is told.
      await sleep(pauseBefore(undefined, failures, LONGEST_PAUSE), options.signal);
    } catch (error) {
      options.signal?.throwIfAborted();
      const broken = limit.signal.aborted ? limit.signal.reason : error;
      failures += 1;
      // What never worked is given up like any request; what did is taken up again however long it takes.
      if (!(opened ? mayComeBack(broken) : mayPass(broken) && failures <= transport.retries)) throw broken;
      await sleep(pauseBefore(broken, failures, LONGEST_PAUSE), options.signal);
    } finally {
      limit.release();
      limit.abort(); // whoever leaves the loop hangs up
    }
  }
}

function read(data: string): unknown {
  try {
    return readJson(data);
  } catch (error) {
    throw new TidewheelError("an event is no JSON", "not_ours", { cause: error });
  }
}

/**
 * Whether a stream that came before may come again: only the server's own word, or what it says, is against it. All else
 * is a page of a proxy's, a connection that broke while it was read, or a token that cannot be had just now.
 */
function mayComeBack(error: unknown): boolean {
  const isPage = error instanceof ProblemError && error.problem === undefined;
  return mayPass(error) || isPage || !(error instanceof TidewheelError);
}
