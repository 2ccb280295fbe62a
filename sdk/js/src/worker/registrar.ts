/** Tells the server about this worker, so that it is on the list of workers. */
import { VERSION } from "../version.js";
import { sleep } from "../waiting.js";
import { hostName, processId } from "./environment.js";
import type { Beat, Lane, Protocol } from "./protocol.js";

/** Seconds between two beats. A worker that was not heard of for twenty is missing. */
const EVERY = 5;
/** So many lanes are told, and of the rest their number. */
const MOST_LANES = 200;

/** What changes from beat to beat. */
export type Condition = Pick<Beat, "running" | "claimed" | "stuck" | "loop_lag_seconds" | Counted>;
type Counted = "ran" | "completed" | "failed" | "lost";

export class Registrar {
  private readonly protocol: Protocol;
  private readonly name: string;
  private readonly lanes: readonly Lane[];
  private readonly concurrency: number;
  private startedAt = new Date().toISOString();

  constructor(protocol: Protocol, name: string, lanes: readonly Lane[], concurrency: number) {
    this.protocol = protocol;
    this.name = name;
    this.lanes = lanes;
    this.concurrency = concurrency;
  }

  /** Until it is over. A server that is away misses some beats, and that is all. */
  async run(condition: () => Condition, over: AbortSignal): Promise<void> {
    try {
      this.startedAt = (await this.protocol.time()) ?? this.startedAt; // the clocks of two machines differ
    } catch {
      // Then this machine's time has to do.
    }
    while (!over.aborted) {
      await this.protocol.beat(this.beat(condition())).catch(() => undefined);
      await sleep(EVERY, over).catch(() => undefined); // over
    }
  }

  /** It goes. Nobody waits for a server that is away. */
  async leave(): Promise<void> {
    await this.protocol.leave(this.name, this.startedAt).catch(() => undefined);
  }

  private beat(condition: Condition): Beat {
    return {
      name: this.name,
      host: hostName(),
      pid: processId(),
      version: `${VERSION} (js)`,
      started_at: this.startedAt,
      lanes: this.lanes.slice(0, MOST_LANES),
      more_lanes: Math.max(0, this.lanes.length - MOST_LANES),
      concurrency: this.concurrency,
      ...condition,
    };
  }
}
