/** The topics of a server: look at them, pause them, bring back what failed in them. */
import { checkNumbers, segment } from "./sendable.js";
import type { Kicked, TopicChanged, TopicList, TopicQuery } from "./shapes.js";
import type { CallOptions, Transport } from "./transport.js";

export interface PauseOptions extends CallOptions {
  /** Resume by itself after so many seconds; until somebody resumes it unless told. */
  seconds?: number;
}

export interface KickOptions extends CallOptions {
  /** How many jobs at most; the server's default unless told. */
  count?: number;
}

export class Topics {
  private readonly transport: Transport;

  constructor(transport: Transport) {
    this.transport = transport;
  }

  /** Every topic that has jobs or is paused. */
  async list(query: TopicQuery = {}, options: CallOptions = {}): Promise<TopicList> {
    return this.transport.ask("GET", "/api/jobs/topics", { ...options, query });
  }

  /** Let no worker take jobs of a topic. */
  async pause(topic: string, { seconds, signal }: PauseOptions = {}): Promise<TopicChanged> {
    return this.change(topic, "pause", signal, { seconds });
  }

  /** Let workers take jobs of a topic again. */
  async resume(topic: string, { signal }: CallOptions = {}): Promise<TopicChanged> {
    return this.change(topic, "resume", signal);
  }

  /** Run failed jobs of a topic again, the newest first. */
  async kick(topic: string, { count, signal }: KickOptions = {}): Promise<Kicked> {
    return this.change(topic, "kick", signal, { count });
  }

  private async change<Answer>(topic: string, verb: string, signal: AbortSignal | undefined, body?: object): Promise<Answer> {
    if (body !== undefined) checkNumbers(body);
    return this.transport.ask("POST", `/api/jobs/topics/${segment("topic", topic)}/${verb}`, { body, signal });
  }
}
