/** The queue of one server: make jobs, wait for them, look at them and manage them. */
import { toBase64 } from "./base64.js";
import { JobCancelled, JobFailed, ResultTimeout } from "./errors.js";
import { events, type EventOptions, type QueueEvent } from "./events.js";
import { checkNumbers, segment } from "./sendable.js";
import type {
  Changed,
  EnqueuedJob,
  EnqueueOptions,
  Job,
  JobFilter,
  JobOutcome,
  JobPage,
  JobQuery,
  JobState,
  JobSummary,
  Statistics,
  StatisticsQuery,
  TaskInformation,
  WorkerInformation,
} from "./shapes.js";
import type { AnyTasks, Enqueued, EnqueueArguments, NewJob, PayloadOf, ResultOf, TaskMap } from "./tasks.js";
import { Topics } from "./topics.js";
import { Transport, type CallOptions, type TransportOptions } from "./transport.js";
import { deadline, sleep } from "./waiting.js";

/** Seconds that one request waits at the server: less than proxies wait for an answer, some of them thirty seconds. */
const LONGEST_WAIT = 20;
/** Seconds that its answer may be late when the time for a result is over: it tells how the job stands. */
const LATE = 1;
const LARGEST_PAGE = 200;
/** What can be the name of a topic; other names can only be those of tasks. */
const TOPIC = /^[A-Za-z0-9_-]{1,200}$/;

export type ClientOptions = TransportOptions;

export interface ResultOptions extends CallOptions {
  /** Seconds to wait altogether, and one more for an answer on its way; as long as it takes unless told. 0 looks once. */
  timeout?: number;
}

/**
 * A client of one server.
 *
 *     const client = new Client<Tasks>({ url: "http://localhost:8080", token: process.env.TIDEWHEEL_KEY });
 *     const job = await client.enqueue("send_digest", { user_id: "42" });
 *     const sent = await client.result(job, { timeout: 10 });
 *
 * `Tasks` says what each task takes and gives back; without it, anything goes.
 */
export class Client<Tasks extends TaskMap<Tasks> = AnyTasks> {
  readonly topics: Topics;
  /** For parts of this package that ask the same server. */
  readonly transport: Transport;

  constructor(options: ClientOptions) {
    this.transport = new Transport(options);
    this.topics = new Topics(this.transport);
  }

  /** Make a job of a task by its name, or for whoever takes jobs of a topic. */
  async enqueue<Name extends keyof Tasks & string>(
    name: Name,
    ...[payload, options = {}]: EnqueueArguments<PayloadOf<Tasks, Name>>
  ): Promise<Enqueued<ResultOf<Tasks, Name>>> {
    const { signal, ...rest } = options;
    return this.transport.ask("POST", "/api/jobs/enqueue", { body: bodyOf(name, payload, rest), signal });
  }

  /** Make up to 1,000 jobs, all of them or none; told in the order they were given. */
  async enqueueMany(jobs: readonly NewJob<Tasks>[], options: CallOptions = {}): Promise<Enqueued[]> {
    const bodies = jobs.map((job) => {
      const { task, payload, ...rest }: EnqueueOptions & { task: string; payload?: unknown } = job;
      return bodyOf(task, payload, rest);
    });
    const path = "/api/jobs/enqueue-many";
    const { items } = await this.transport.ask<{ items: EnqueuedJob[] }>("POST", path, { ...options, body: { jobs: bodies } });
    return items;
  }

  /** One job with its errors and steps. Throws `NotFound`. */
  async get(id: string, options: CallOptions = {}): Promise<Job> {
    return this.transport.ask("GET", `/api/jobs/${segment("id", id)}`, options);
  }

  /** What the job's handler returned, once it has. Throws `JobFailed`, `JobCancelled` or `ResultTimeout`. */
  async result<Result = unknown>(job: string | Enqueued<Result>, options: ResultOptions = {}): Promise<Result> {
    const id = typeof job === "string" ? job : job.id;
    const { timeout = Infinity, signal } = options;
    if (Number.isNaN(timeout)) throw new RangeError("timeout is NaN; give seconds, or leave it out");
    const began = performance.now();
    let state: JobState | undefined;
    const limit = deadline(Math.max(0, timeout) + LATE, () => new ResultTimeout(id, timeout, state), signal);
    try {
      for (;;) {
        const asked = performance.now();
        const left = Math.max(0, timeout - (asked - began) / 1000);
        const waits = Math.min(left, LONGEST_WAIT);
        const path = `/api/jobs/${segment("id", id)}/result`;
        const told = await this.transport.ask<JobOutcome>("GET", path, { query: { wait: waits }, waits, signal: limit.signal });
        state = told.state;
        if (state === "completed") return (told.result ?? null) as Result;
        if (state === "failed") throw new JobFailed(id, told.error ?? null);
        if (state === "cancelled") throw new JobCancelled(id, told.error ?? null);
        const now = performance.now();
        if (now - began >= timeout * 1000) throw new ResultTimeout(id, timeout, state);
        // A server that shuts down answers early; asking again at once would only keep it busy.
        if (now - asked < waits * 500) await sleep(Math.min(1, waits), limit.signal);
      }
    } finally {
      limit.release();
    }
  }

  /** A page of jobs that match, newest first. */
  async list(query: JobQuery = {}, options: CallOptions = {}): Promise<JobPage> {
    return this.transport.ask("GET", "/api/jobs", { ...options, query });
  }

  /** All jobs that match, newest first, read page by page while you go on. */
  async *each(filter: JobFilter = {}, options: CallOptions = {}): AsyncGenerator<JobSummary, void, undefined> {
    let cursor: string | null | undefined;
    do {
      const query: JobQuery = { ...filter, limit: LARGEST_PAGE, ...(cursor && { cursor }) };
      const page = await this.list(query, options);
      yield* page.items;
      cursor = page.cursor;
    } while (cursor !== null);
  }

  /** Counts, times and throughput. */
  async stats(query: StatisticsQuery = {}, options: CallOptions = {}): Promise<Statistics> {
    return this.transport.ask("GET", "/api/jobs/stats", { ...options, query });
  }

  /** Run a failed or cancelled job again. */
  async requeue(id: string, options: CallOptions = {}): Promise<Changed> {
    return this.transport.ask("POST", `/api/jobs/${segment("id", id)}/requeue`, options);
  }

  /** Cancel a job; `requested` when it runs, and its worker has been asked to stop. */
  async cancel(id: string, options: CallOptions = {}): Promise<Changed> {
    return this.transport.ask("POST", `/api/jobs/${segment("id", id)}/cancel`, options);
  }

  /** Remove a job that is not running. */
  async delete(id: string, options: CallOptions = {}): Promise<Changed> {
    return this.transport.ask("DELETE", `/api/jobs/${segment("id", id)}`, options);
  }

  /** The tasks that the server knows, with the schemas of their payloads. */
  async tasks(options: CallOptions = {}): Promise<TaskInformation[]> {
    return (await this.transport.ask<{ items: TaskInformation[] }>("GET", "/api/jobs/tasks", options)).items;
  }

  /** Who runs jobs, and how they are doing. */
  async workers(options: CallOptions = {}): Promise<WorkerInformation[]> {
    return (await this.transport.ask<{ items: WorkerInformation[] }>("GET", "/api/jobs/workers", options)).items;
  }

  /** What happens, as it happens: `for await (const event of client.events({ job: id }))`. */
  events(options: EventOptions = {}): AsyncGenerator<QueueEvent, void, undefined> {
    return events(this.transport, options);
  }
}

/** A job to make, as it travels. As `app.enqueue(name, …)` does, a name is that of a task or of a topic. */
function bodyOf(name: string, payload: unknown, options: EnqueueOptions): Record<string, unknown> {
  const where = options.topic === undefined && TOPIC.test(name) ? { topic: name } : { task: name };
  checkNumbers(options);
  const what = payload instanceof Uint8Array ? { payload: toBase64(payload), format: "bytes" } : { payload };
  return { ...options, ...where, ...what };
}
