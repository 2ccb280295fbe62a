/**
 * What goes wrong, as one tree:
 *
 *     TidewheelError
 *     ├── ProblemError       the server answered with a problem document: code, status, detail, errors
 *     │   ├── InvalidInput   400, 413, 422: what was sent cannot be accepted; nothing was written. 400 and 422 of a
 *     │   │                  proxy's are no word of the server's, and a ProblemError like any other page
 *     │   ├── NotAuthenticated   401: no key or token, or not a good one
 *     │   ├── NotPermitted   403: a rule or a scope is against it
 *     │   ├── NotFound       404: no such job, or not one this caller may see
 *     │   ├── WrongState     409: the job is not in a state that allows this
 *     │   └── Unavailable    502, 503, 504: the server or its store could not, after all retries
 *     ├── ConnectionError    no answer came, after all retries
 *     ├── JobFailed          thrown by `client.result`: the job is failed; `.error` says why
 *     ├── JobCancelled       likewise: the job is cancelled
 *     ├── ResultTimeout      likewise: the time given to it ran out; the job goes on
 *     └── LeaseLost          thrown in handlers: the job is not this worker's any more; nothing was written
 */
import type { JobError, JobState, Problem, ProblemPart } from "./shapes.js";

/** Every error of this package's own. `code` is for programs. */
export class TidewheelError extends Error {
  readonly code: string;

  constructor(message: string, code: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
  }
}

/** The server's answer was a problem document, or something in its place said no. */
export class ProblemError extends TidewheelError {
  readonly status: number;
  readonly detail: string;
  /** Of refused input: what is wrong with which part of it. */
  readonly errors: readonly ProblemPart[];
  /** The whole document; absent when a proxy answered in the server's place. */
  readonly problem: Problem | undefined;
  /** Seconds after which the server thinks that trying again makes sense. */
  readonly retryAfter: number | undefined;

  constructor(status: number, detail: string, problem?: Problem, retryAfter?: number) {
    super(detail, problem?.code ?? "not_ours");
    this.status = status;
    this.detail = detail;
    this.errors = problem?.errors ?? [];
    this.problem = problem;
    this.retryAfter = retryAfter;
  }
}

export class InvalidInput extends ProblemError {}
export class NotAuthenticated extends ProblemError {}
export class NotPermitted extends ProblemError {}
export class NotFound extends ProblemError {}
export class WrongState extends ProblemError {}
export class Unavailable extends ProblemError {}

const BY_STATUS: Readonly<Record<number, typeof ProblemError>> = {
  400: InvalidInput,
  401: NotAuthenticated,
  403: NotPermitted,
  404: NotFound,
  409: WrongState,
  413: InvalidInput,
  422: InvalidInput,
  502: Unavailable,
  503: Unavailable,
  504: Unavailable,
};

/** The error that belongs to an answer. */
export function problemError(status: number, detail: string, problem?: Problem, retryAfter?: number): ProblemError {
  const found = BY_STATUS[status] ?? ProblemError;
  const said = found === InvalidInput && !isRefusal(status, problem) ? ProblemError : found;
  return new said(status, detail, problem, retryAfter);
}

/**
 * Whether the input is to blame, and sending it again makes no sense. A proxy knows nothing of that: its 400 and 422 pass
 * like an outage, and must not cost a job whose handler succeeded. Too large is what is too large for anybody on the way.
 */
function isRefusal(status: number, problem: Problem | undefined): boolean {
  return problem !== undefined || status === 413;
}

/** The server could not be reached, or did not answer in time. `cause` has what the network said. */
export class ConnectionError extends TidewheelError {
  constructor(message: string, options?: ErrorOptions) {
    super(message, "unreachable", options);
  }
}

/** A job ended without a result. */
class EndedJob extends TidewheelError {
  readonly jobId: string;
  /** Why it ended so, where that is known. */
  readonly error: JobError | null;

  constructor(jobId: string, state: JobState, code: string, error: JobError | null) {
    super(`job ${jobId} is ${state}${error === null ? "" : `: ${error.message}`}`, code);
    this.jobId = jobId;
    this.error = error;
  }
}

export class JobFailed extends EndedJob {
  constructor(jobId: string, error: JobError | null) {
    super(jobId, "failed", "job_failed", error);
  }
}

export class JobCancelled extends EndedJob {
  constructor(jobId: string, error: JobError | null) {
    super(jobId, "cancelled", "job_canceled", error);
  }
}

export class ResultTimeout extends TidewheelError {
  readonly jobId: string;

  /** `state` as it was told last; undefined when no answer came. */
  constructor(jobId: string, seconds: number, state: JobState | undefined) {
    super(`job ${jobId} is ${state ?? "in a state that nobody told"} after ${seconds} s; it goes on`, "result_timeout");
    this.jobId = jobId;
  }
}

export class LeaseLost extends TidewheelError {
  constructor(jobId: string, fence: number) {
    super(`job ${jobId} is no longer held by this run (fence ${fence}); nothing was written`, "lease_lost");
  }
}
