/** What handlers throw to say how an attempt ends. Any other error is tried again while attempts are left. */

/** Thrown by a handler. Not an error of this package's own. */
export class Directive extends Error {
  constructor(message: string) {
    super(message);
    this.name = new.target.name;
  }
}

export interface TaskErrorOptions {
  /** For programs; at most 100 characters. */
  code?: string;
  /** An object of JSON, at most 16,000 bytes. */
  details?: Readonly<Record<string, unknown>>;
  /** False fails the job at once. */
  retryable?: boolean;
}

/** The attempt errored, and this is what is kept of it. */
export class TaskError extends Directive {
  readonly code: string;
  readonly details: Readonly<Record<string, unknown>> | undefined;
  readonly retryable: boolean;

  constructor(message: string, { code = "handler_error", details, retryable = true }: TaskErrorOptions = {}) {
    super(message);
    this.code = code;
    this.details = details;
    this.retryable = retryable;
  }
}

/** Try again in `delay` seconds. The attempt counts; the last one fails the job. */
export class RetryAfter extends Directive {
  readonly delay: number;

  constructor(delay: number, reason = "the handler asked for another try") {
    super(reason);
    this.delay = delay;
  }
}

/** End the job as failed, whatever attempts are left. */
export class Fail extends Directive {
  readonly code: string;

  constructor(reason = "the handler gave up", { code = "handler_error" }: { code?: string } = {}) {
    super(reason);
    this.code = code;
  }
}

/** Run the job again in `delay` seconds. This attempt is not counted. */
export class Snooze extends Directive {
  readonly delay: number;

  constructor(delay: number) {
    super(`snoozed for ${delay} s`);
    this.delay = delay;
  }
}

/** End the job as cancelled. */
export class Cancel extends Directive {
  constructor(reason = "the handler cancelled the job") {
    super(reason);
  }
}

/** Thrown by `context.release()`: the job is given back, and this attempt is not counted. */
export class Released extends Directive {
  readonly delay: number;

  constructor(delay: number) {
    super("given back by its handler");
    this.delay = delay;
  }
}
