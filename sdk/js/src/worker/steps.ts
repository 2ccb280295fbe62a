/** A task written as named steps: what each returned is kept, and a later run of the job goes on after it. */
import { jsonOf, readJson, storable } from "../json.js";

export interface NewStep {
  name: string;
  output: unknown;
  run_seconds: number;
}

export class Steps {
  private readonly read: () => Promise<ReadonlyMap<string, unknown>>;
  private readonly keep: (step: NewStep) => Promise<void>;
  /** Outputs of earlier runs, asked for by the first step: a task without steps never asks. */
  private earlier: Promise<ReadonlyMap<string, unknown>> | undefined;
  private readonly used = new Set<string>();

  constructor(read: () => Promise<ReadonlyMap<string, unknown>>, keep: (step: NewStep) => Promise<void>) {
    this.read = read;
    this.keep = keep;
  }

  async run<Output>(name: string, work: () => Output | Promise<Output>): Promise<Output> {
    if (this.used.has(name)) {
      throw new TypeError(`step ${JSON.stringify(name)} was used before in this run; every step needs a name of its own`);
    }
    if (jsonOf(name) !== JSON.stringify(name)) {
      throw new TypeError(`step ${JSON.stringify(name)} has half a character in its name, under which no later run would find it`);
    }
    this.used.add(name); // before anything is awaited: a step of the same name may begin meanwhile
    try {
      const earlier = await this.finished();
      if (earlier.has(name)) return earlier.get(name) as Output;
      const began = performance.now();
      // As a later run would get it: through JSON.
      const output: unknown = readJson(storable(`what step ${JSON.stringify(name)} returned`, await work()));
      await this.keep({ name, output, run_seconds: (performance.now() - began) / 1000 });
      return output as Output;
    } catch (error) {
      this.used.delete(name); // not recorded: the handler may try it again
      throw error;
    }
  }

  private async finished(): Promise<ReadonlyMap<string, unknown>> {
    this.earlier ??= this.read();
    try {
      return await this.earlier;
    } catch (error) {
      this.earlier = undefined; // to be asked again by the next step
      throw error;
    }
  }
}
