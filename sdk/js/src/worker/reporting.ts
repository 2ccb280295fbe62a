/** What goes to the server about jobs at work, in batches: starts, progress, checkpoints, steps, outcomes. */
import { InvalidInput, TidewheelError } from "../errors.js";
import { jsonOf } from "../json.js";
import { makeRequestId } from "../transport.js";
import { Batcher, type SendBatch } from "./batcher.js";
import type { Held } from "./held.js";
import { afterRefusal, textOfThrown } from "./outcomes.js";
import { isRefused, isTurnedAway, persist } from "./persistence.js";
import type { Ending, Lease, Outcome, Protocol, Report, Settlement, Verdict } from "./protocol.js";

type Judge = (error: unknown) => boolean;

/** `patience`: seconds in which something is tried again that is turned away on its way, as long as the job's lease. */
export class Reporting {
  private readonly starts: Batcher<boolean>;
  private readonly startsAlone: Batcher<boolean>;
  private readonly reports: Batcher<boolean>;
  private readonly news: Batcher<boolean>;
  private readonly settlements: Batcher<Verdict>;
  private readonly protocol: Protocol;
  private readonly over: AbortSignal;

  constructor(protocol: Protocol, over: AbortSignal) {
    // One id for a batch however often it is tried: what was done before the connection broke is not done again.
    const insist =
      <Answer>(ask: (texts: readonly string[], requestId: string) => Promise<readonly Answer[]>, final: Judge): SendBatch<Answer> =>
      (texts) => {
        const requestId = makeRequestId();
        return persist(() => ask(texts, requestId), over, final);
      };
    const isBlamed: Judge = (error) => isRefused(error) || isTurnedAway(error);
    // There is nothing in a start that a filter could dislike: a page in its place is an outage.
    this.starts = new Batcher(insist((texts, requestId) => protocol.start(texts, requestId, false), isRefused));
    this.startsAlone = new Batcher(insist((texts, requestId) => protocol.start(texts, requestId, true), isRefused));
    this.reports = new Batcher(insist((texts, requestId) => protocol.report(texts, requestId), isBlamed), over);
    this.news = new Batcher((texts) => protocol.report(texts, makeRequestId()));
    this.settlements = new Batcher(insist((texts, requestId) => protocol.settle(texts, requestId), isBlamed), over);
    this.protocol = protocol;
    this.over = over;
  }

  /** The handler has begun. False when the lease is not held any more. */
  start(held: Held): Promise<boolean> {
    held.startReported = true;
    return (held.chargedIfLost ? this.startsAlone : this.starts).add(JSON.stringify(held.lease));
  }

  /** Remember a checkpoint or a step, however long the server is away. False when the lease is not held any more. */
  async report(report: Report, patience: number): Promise<boolean> {
    return this.reports.add(textOf(report), patience);
  }

  /** Tell how far it is. While the server is away nobody looks, and it is let go. */
  async tell(report: Report): Promise<boolean> {
    try {
      return await this.news.add(textOf(report));
    } catch (error) {
      if (error instanceof InvalidInput) throw error;
      return true;
    }
  }

  /** What earlier runs have finished, however long the server is away. */
  steps(lease: Lease): Promise<ReadonlyMap<string, unknown> | undefined> {
    return persist(() => this.protocol.steps(lease), this.over);
  }

  /**
   * End a lease; how that was in the end. The work is done and the job has to end: a result or an error that cannot be
   * written, or is refused, gives way to the reason, and `refused` is told of a result. "lost" when the lease is not held
   * any more; nothing was changed then.
   */
  async settle(
    lease: Lease,
    outcome: Outcome,
    patience: number,
    runSeconds?: number,
    refused?: (error: unknown) => void,
  ): Promise<Ending> {
    const seconds = runSeconds === undefined ? {} : { run_seconds: runSeconds };
    const told = (ending: Outcome): string => textOf({ ...lease, ...ending, ...seconds });
    const tell = async (ending: Outcome, text: string): Promise<Ending> => {
      const verdict = await this.settlements.add(text, patience);
      if (typeof verdict !== "string") return verdict ? ending.outcome : "lost";
      refused?.(new TidewheelError(verdict, "invalid_result"));
      return "fail";
    };
    const tellInstead = (error: unknown, why: string): Promise<Ending> => {
      const instead = afterRefusal(outcome, why);
      if (instead === undefined) throw error;
      if (outcome.outcome === "complete") refused?.(error);
      return tell(instead, told(instead));
    };
    let text: string;
    try {
      text = told(outcome);
    } catch (error) {
      const what = outcome.outcome === "complete" ? "result" : "error";
      return tellInstead(error, `the ${what} cannot be written as JSON: ${textOfThrown(error)}`);
    }
    try {
      return await tell(outcome, text);
    } catch (error) {
      if (!(error instanceof InvalidInput)) throw error;
      return tellInstead(error, error.message);
    }
  }
}

function textOf(item: Report | Settlement): string {
  return jsonOf(item) ?? "null"; // an object has a text
}
