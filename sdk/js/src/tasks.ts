/**
 * Tasks as types: what each takes and what it gives back.
 *
 * `Tasks` is made from the schemas of the Python side (`GET /api/jobs/tasks/openapi.json`, or `tidewheel tasks --openapi`)
 * by openapi-typescript; without it, anything goes.
 */
import type { EnqueueOptions, EnqueuedJob } from "./shapes.js";
import type { CallOptions } from "./transport.js";

/** What tasks are when nobody says. `any`, because `unknown` would refuse every handler that says what it takes. */
export type AnyTasks = Record<string, { payload: any; result: any }>;

/** What a map of tasks has to look like; in terms of itself, so that an interface will do as well. */
export type TaskMap<Tasks> = { [Name in keyof Tasks]: { payload: unknown; result: unknown } };

export type TaskName<Tasks> = keyof Tasks & string;
export type PayloadOf<Tasks extends TaskMap<Tasks>, Name extends keyof Tasks> = Tasks[Name]["payload"];
export type ResultOf<Tasks extends TaskMap<Tasks>, Name extends keyof Tasks> = Tasks[Name]["result"];

/** What may be given for a payload: where text is wanted, bytes will do; they travel as base64. */
export type Sendable<Payload> = string extends Payload ? Payload | Uint8Array : Payload;

/** The arguments after the name: a payload may be left out where an empty one fits. */
export type EnqueueArguments<Payload> = Record<string, never> extends Payload
  ? [payload?: Sendable<Payload>, options?: EnqueueOptions & CallOptions]
  : [payload: Sendable<Payload>, options?: EnqueueOptions & CallOptions];

/** One of many jobs to make. */
export type NewJob<Tasks extends TaskMap<Tasks>> = {
  [Name in TaskName<Tasks>]: EnqueueOptions & { task: Name } & (Record<string, never> extends PayloadOf<Tasks, Name>
      ? { payload?: Sendable<PayloadOf<Tasks, Name>> }
      : { payload: Sendable<PayloadOf<Tasks, Name>> });
}[TaskName<Tasks>];

declare const resultType: unique symbol;

/** A job that was made, which remembers the type of its result for `client.result(job)`. */
export type Enqueued<Result = unknown> = EnqueuedJob & { readonly [resultType]?: Result };
