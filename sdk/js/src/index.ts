/** What this package is for others: a client, a worker, and the words they use. */
export { fromBase64, toBase64 } from "./base64.js";
export { Client, type ClientOptions, type ResultOptions } from "./client.js";
export {
  ConnectionError,
  InvalidInput,
  JobCancelled,
  JobFailed,
  LeaseLost,
  NotAuthenticated,
  NotFound,
  NotPermitted,
  ProblemError,
  ResultTimeout,
  Unavailable,
  TidewheelError,
  WrongState,
} from "./errors.js";
export type { EventOptions, JobEvent, QueueEvent, TopicEvent } from "./events.js";
export type * from "./shapes.js";
export type * from "./tasks.js";
export type { KickOptions, PauseOptions } from "./topics.js";
export type { CallOptions } from "./transport.js";
export type { Context } from "./worker/context.js";
export { Cancel, Directive, Fail, RetryAfter, Snooze, TaskError, type TaskErrorOptions } from "./worker/directives.js";
export type { Handler, HandlerOnTopic, Handlers } from "./worker/handlers.js";
export type { Lane, ReservedJob } from "./worker/protocol.js";
export { Stopped, type StopReason } from "./worker/stopping.js";
export { Worker, type StopOptions, type WorkerOptions } from "./worker/worker.js";
