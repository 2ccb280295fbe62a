/** Handlers by the names of their tasks: what a worker asks for, and who runs what it gets. */
import type { PayloadOf, ResultOf, TaskMap, TaskName } from "../tasks.js";
import type { Context } from "./context.js";
import { MOST_TOGETHER, type Lane, type ReservedJob } from "./protocol.js";

/** Does the work of a job. What it returns is the result. */
export type Handler<Payload, Result> = (payload: Payload, context: Context) => Result | Promise<Result>;

/** A handler of a task that does not live on the topic of its own name. */
export interface HandlerOnTopic<Payload, Result> {
  topic: string;
  run: Handler<Payload, Result>;
}

export type Handlers<Tasks extends TaskMap<Tasks>> = {
  [Name in TaskName<Tasks>]?:
    | Handler<PayloadOf<Tasks, Name>, ResultOf<Tasks, Name>>
    | HandlerOnTopic<PayloadOf<Tasks, Name>, ResultOf<Tasks, Name>>;
};

export type AnyHandler = Handler<never, unknown>;
type Given = AnyHandler | HandlerOnTopic<never, unknown> | undefined;

/** The handlers of one worker. A job without a task is run by the handler of its topic's name, as everywhere. */
export class HandlerTable {
  readonly lanes: readonly Lane[];
  private readonly byTask = new Map<string, AnyHandler>();
  private readonly byTopic = new Map<string, AnyHandler>();

  constructor(handlers: Readonly<Record<string, Given>>, topics?: readonly string[], lanes?: readonly Lane[]) {
    const homes = new Map<string, string[]>(); // topic: the tasks that live there
    for (const [name, given] of Object.entries(handlers)) {
      if (given === undefined) continue;
      const { topic, run } = homeOf(name, given);
      this.byTask.set(name, run);
      homes.set(topic, [...(homes.get(topic) ?? []), name]);
    }
    for (const [topic, names] of homes) {
      const only = names.length === 1 ? names[0] : undefined;
      const bare = this.byTask.get(topic) ?? this.byTask.get(only ?? "");
      if (bare !== undefined) this.byTopic.set(topic, bare);
    }
    this.lanes = lanes ?? lanesOf(homes, this.byTopic, topics);
    if (this.byTask.size === 0) throw new TypeError("handlers is empty; give at least one: { send_digest: (payload) => … }");
    const { length } = this.lanes;
    if (length < 1 || length > MOST_TOGETHER) throw new RangeError(`there are ${length} lanes; 1 to ${MOST_TOGETHER} are possible`);
  }

  /** Who runs this job; undefined when nobody here can. */
  of(job: ReservedJob): AnyHandler | undefined {
    return job.task === "" ? this.byTopic.get(job.topic) : this.byTask.get(job.task);
  }
}

/** Where a task lives, and who runs it. In plain JavaScript anything may be given. */
function homeOf(name: string, given: Exclude<Given, undefined>): HandlerOnTopic<never, unknown> {
  if (typeof given === "function") return { topic: name, run: given };
  const { topic, run }: Partial<HandlerOnTopic<never, unknown>> = given ?? {};
  if (typeof topic === "string" && typeof run === "function") return { topic, run };
  const remedy = "give a function, or { topic, run } with a topic's name and a function";
  throw new TypeError(`the handler of ${JSON.stringify(name)} is ${JSON.stringify(given)}; ${remedy}`);
}

function lanesOf(
  homes: ReadonlyMap<string, readonly string[]>,
  byTopic: ReadonlyMap<string, AnyHandler>,
  topics?: readonly string[],
): Lane[] {
  const wanted = topics === undefined ? undefined : new Set(topics);
  const lanes: Lane[] = [];
  for (const [topic, names] of homes) {
    if (wanted?.has(topic) === false) continue;
    for (const task of names) lanes.push({ topic, task });
    if (byTopic.has(topic)) lanes.push({ topic, task: "" });
  }
  // A topic that is home to no handler: jobs of our tasks that were routed there.
  for (const topic of wanted ?? []) {
    if (!homes.has(topic)) for (const task of [...homes.values()].flat()) lanes.push({ topic, task });
  }
  return lanes;
}
