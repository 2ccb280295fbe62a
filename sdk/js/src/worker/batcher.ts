/**
 * Sends one batch at a time. Whatever gathers while one is on its way makes the next: alone nothing waits, and a busy
 * worker asks once for many jobs.
 *
 * One that the server refuses, or that something in front of it turns away, costs its neighbours nothing: they are sent one
 * by one then, and what is turned away is tried again apart from the others.
 */
import { pauseBefore } from "../transport.js";
import { sleep } from "../waiting.js";
import { isRefused, isTurnedAway } from "./persistence.js";
import { MOST_TOGETHER } from "./protocol.js";

/** The largest batch in characters: a quarter of what a server takes, whose limit counts bytes. */
const LARGEST = 1024 * 1024;
/** Seconds between two tries of something that is turned away, at most: a worker that is to end has time for one more. */
const LONGEST_PAUSE = 5;

/** The answers for these texts of JSON, in their order. */
export type SendBatch<Answer> = (texts: readonly string[]) => Promise<readonly Answer[]>;

interface Entry<Answer> {
  text: string;
  patience: number;
  resolve: (answer: Answer) => void;
  reject: (error: unknown) => void;
}

export class Batcher<Answer> {
  private readonly send: SendBatch<Answer>;
  private readonly over: AbortSignal | undefined;
  private waiting: Entry<Answer>[] = [];
  private sending = false;

  /** With `over` things that are turned away are tried again, until that aborts. */
  constructor(send: SendBatch<Answer>, over?: AbortSignal) {
    this.send = send;
    this.over = over;
  }

  /**
   * What the server says about this item, which is JSON already. `patience`: seconds in which it is tried again when it is
   * turned away; for ever, its lease would be kept for ever.
   */
  add(text: string, patience = 0): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.waiting.push({ text, patience, resolve, reject });
      if (!this.sending) void this.drain();
    });
  }

  private async drain(): Promise<void> {
    this.sending = true;
    await Promise.resolve(); // whatever ends in the same turn goes along
    while (this.waiting.length > 0) await this.deliver(this.take());
    this.sending = false;
  }

  private take(): Entry<Answer>[] {
    let size = 0;
    let count = 0;
    for (const { text } of this.waiting) {
      size += text.length;
      if (count > 0 && (size > LARGEST || count >= MOST_TOGETHER)) break;
      count += 1;
    }
    return this.waiting.splice(0, count);
  }

  private async deliver(entries: readonly Entry<Answer>[]): Promise<void> {
    try {
      const answers = await this.send(entries.map((entry) => entry.text));
      entries.forEach((entry, place) => entry.resolve(answers[place] as Answer));
    } catch (error) {
      const [first, ...others] = entries;
      if (others.length > 0 && (isRefused(error) || isTurnedAway(error))) {
        for (const entry of entries) await this.deliver([entry]); // one of them is to blame, and the others are not
      } else if (first !== undefined && this.over !== undefined && isTurnedAway(error)) {
        void this.tryApart(first, error, this.over).then(first.resolve, first.reject); // nobody waits for it in line
      } else {
        for (const entry of entries) entry.reject(error);
      }
    }
  }

  private async tryApart({ text, patience }: Entry<Answer>, error: unknown, over: AbortSignal): Promise<Answer> {
    const until = performance.now() + patience * 1000;
    for (let failures = 1; performance.now() < until; failures += 1) {
      await sleep(pauseBefore(error, failures, LONGEST_PAUSE), over).catch(() => undefined); // over
      if (over.aborted) break;
      try {
        const [answer] = await this.send([text]);
        return answer as Answer;
      } catch (again) {
        if (!isTurnedAway(again)) throw again;
        error = again;
      }
    }
    throw error;
  }
}
