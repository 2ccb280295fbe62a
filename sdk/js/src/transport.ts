/**
 * Requests and their answers: JSON in and out, problems as errors, and tries that are repeated.
 *
 * A request that changes something carries an id of its own, and every repetition carries the same: while the server
 * remembers the id it does it once, and answers the repetition as it answered the first. Nothing is repeated after that.
 */
import { parse, problemOf } from "./answers.js";
import { ConnectionError, ProblemError } from "./errors.js";
import { writeJson } from "./json.js";
import { deadline, orAborted, pauseAfter, sleep, stopwatch } from "./waiting.js";

const FIRST_PAUSE = 0.25;
const LONGEST_PAUSE = 10;
/** Longer than this nobody waits because a server says so. */
const LONGEST_RETRY_AFTER = 60;
/** Seconds from its first try in which a request is repeated under its id; the server remembers it for sixty. */
export const REMEMBERED = 50;
const REPEATED = new Set([502, 503, 504]);

export type Query = Readonly<Record<string, string | number | boolean | Date | readonly string[] | null | undefined>>;

export interface TransportOptions {
  /** Where the server is, without `/api/jobs`: "https://jobs.example.com", or a path below that. */
  url: string | URL;
  /** An API key or a JSON Web Token. A function is asked before every try, for tokens that are renewed. */
  token?: string | (() => string | Promise<string>);
  /** More headers for every request. */
  headers?: Readonly<Record<string, string>>;
  /** Instead of the global one: a proxy, a test. */
  fetch?: typeof globalThis.fetch;
  /** Seconds for one try. 30 unless told. What waits on purpose is given that much more. */
  timeout?: number;
  /**
   * How often a request that found nobody, or 502, 503 or 504, is repeated. 5 unless told, which takes about ten seconds.
   * What changes something is tried for fifty seconds at most: so long the server knows that it has done it.
   */
  retries?: number;
}

/** What can be said about one call. */
export interface CallOptions {
  signal?: AbortSignal | undefined;
}

export interface Wish extends CallOptions {
  query?: Query;
  body?: unknown;
  /** JSON that is made already, in place of `body`. */
  text?: string;
  /** Seconds that the server is asked to wait before it answers. */
  waits?: number;
  /** Seconds for one try, where the client's are too many. */
  timeout?: number;
  /** The id under which the server remembers the answer; made anew unless given. */
  requestId?: string;
  retries?: number;
}

/** One server, and how it is asked. */
export class Transport {
  readonly retries: number;
  private readonly timeout: number;
  private readonly root: string;
  private readonly fetch: typeof globalThis.fetch;
  private readonly options: TransportOptions;

  constructor(options: TransportOptions) {
    const { protocol, origin, pathname } = new URL(options.url);
    if (protocol !== "http:" && protocol !== "https:") {
      throw new TypeError(`url is ${String(options.url)}; it has to begin with http:// or https://`);
    }
    this.root = origin + pathname.replace(/\/+$/, "");
    this.timeout = atLeast("timeout", options.timeout ?? 30, 0.001);
    this.retries = atLeast("retries", options.retries ?? 5, 0);
    // Called as a function of nobody's: browsers refuse it as a method of anything else.
    this.fetch = options.fetch ?? ((...given) => globalThis.fetch(...given));
    this.options = options;
  }

  /** The answer to a request, as JSON; undefined where there is none. */
  async ask<Answer>(method: string, path: string, wish: Wish = {}): Promise<Answer> {
    const requestId = method === "GET" ? undefined : (wish.requestId ?? makeRequestId());
    const retries = wish.retries ?? this.retries;
    const longest = requestId === undefined ? Infinity : REMEMBERED;
    const passed = stopwatch();
    let left = Infinity; // seconds; the first try cannot be one too many
    for (let failures = 0; ; ) {
      try {
        return (await this.once(method, path, wish, requestId, left)) as Answer;
      } catch (error) {
        wish.signal?.throwIfAborted();
        failures += 1;
        if (failures > retries || !mayPass(error)) throw error;
        const pause = pauseBefore(error, failures);
        left = longest - passed() - pause;
        if (left <= 0) throw error; // later than that the server would do it again
        await sleep(pause, wish.signal);
      }
    }
  }

  /** A response whose body is not read yet; a problem is thrown. Asked once. */
  async open(path: string, query: Query, headers: Readonly<Record<string, string>>, signal: AbortSignal): Promise<Response> {
    const response = await this.send("GET", path, query, headers, undefined, signal);
    if (!response.ok) throw await problemOf(response, this.root);
    return response;
  }

  /** One try, of `most` seconds whatever it waits for. */
  private async once(method: string, path: string, wish: Wish, requestId: string | undefined, most: number): Promise<unknown> {
    const text = wish.text ?? (wish.body === undefined ? undefined : writeJson(wish.body));
    const seconds = Math.min(most, Math.min(this.timeout, wish.timeout ?? Infinity) + (wish.waits ?? 0));
    const late = (): ConnectionError => new ConnectionError(`${method} ${path}: no answer within ${Number(seconds.toFixed(3))} s`);
    const limit = deadline(seconds, late, wish.signal);
    const headers: Record<string, string> = { Accept: "application/json" };
    if (text !== undefined) headers["Content-Type"] = "application/json";
    if (requestId !== undefined) headers["Tidewheel-Request-Id"] = requestId;
    try {
      const response = await this.send(method, path, wish.query ?? {}, headers, text, limit.signal);
      if (!response.ok) throw await problemOf(response, this.root);
      const said = await this.read(response, limit.signal);
      return said === "" ? undefined : parse(said, response);
    } finally {
      limit.release();
    }
  }

  private async send(
    method: string,
    path: string,
    query: Query,
    headers: Readonly<Record<string, string>>,
    body: string | undefined,
    signal: AbortSignal,
  ): Promise<Response> {
    const { token } = this.options;
    // Whoever makes tokens knows nothing of our time.
    const secret = typeof token === "function" ? await orAborted(Promise.resolve().then(token), signal) : token;
    const authorization = secret === undefined ? {} : { Authorization: `Bearer ${secret}` };
    // Made before anything is tried: a header that cannot be sent is a mistake, and no trouble of the network's.
    const sent = new Headers({ ...this.options.headers, ...authorization, ...headers });
    const address = this.root + path + textOf(query);
    try {
      // Redirects are not followed: the token is for the server that was named, and a POST would become a GET.
      return await this.fetch(address, { method, headers: sent, signal, redirect: "manual", ...(body !== undefined && { body }) });
    } catch (error) {
      throw unreached(error, signal, this.root);
    }
  }

  private async read(response: Response, signal: AbortSignal): Promise<string> {
    try {
      return await response.text();
    } catch (error) {
      throw unreached(error, signal, this.root);
    }
  }
}

/** An id for one request; `crypto.randomUUID` is for pages that came over TLS only. */
export function makeRequestId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Whether the same request may fare better a moment later. */
export function mayPass(error: unknown): boolean {
  return error instanceof ConnectionError || (error instanceof ProblemError && REPEATED.has(error.status));
}

/** How long to wait before the next try: as long as the server says, unless nobody can wait for longer than `longest`. */
export function pauseBefore(error: unknown, failures: number, longest?: number): number {
  const pause = pauseAfter(failures, FIRST_PAUSE, longest ?? LONGEST_PAUSE);
  const told = error instanceof ProblemError ? (error.retryAfter ?? 0) : 0;
  return Math.max(pause, Math.min(told, longest ?? LONGEST_RETRY_AFTER));
}

/** What fetch threw: somebody's wish to stop as it was said, anything else as a connection that failed. */
function unreached(error: unknown, signal: AbortSignal, root: string): unknown {
  if (signal.aborted) return signal.reason;
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  const said = cause instanceof Error ? cause.message : String(cause);
  return new ConnectionError(`${root} cannot be reached: ${said}`, { cause: error });
}

function textOf(query: Query): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null) continue;
    parameters.append(name, value instanceof Date ? value.toISOString() : String(value));
  }
  const text = parameters.toString();
  return text === "" ? "" : `?${text}`;
}

function atLeast(name: string, value: number, least: number): number {
  if (!(value >= least)) throw new RangeError(`${name} is ${value}; the least is ${least}`);
  return value;
}
