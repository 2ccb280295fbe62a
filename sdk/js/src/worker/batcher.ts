/**
 * Sends one batch at a time. Whatever gathers while one is on its way makes the next: alone nothing waits, and a busy
 * worker asks once for many jobs.
 */
import { InvalidInput } from "../errors.js";
import { MOST_TOGETHER } from "./protocol.js";

/** The largest batch in characters: a quarter of what a server takes, whose limit counts bytes. */
const LARGEST = 1024 * 1024;

/** The answers for these texts of JSON, in their order. */
export type SendBatch<Answer> = (texts: readonly string[]) => Promise<readonly Answer[]>;

interface Entry<Answer> {
  text: string;
  resolve: (answer: Answer) => void;
  reject: (error: unknown) => void;
}

export class Batcher<Answer> {
  private readonly send: SendBatch<Answer>;
  private waiting: Entry<Answer>[] = [];
  private sending = false;

  constructor(send: SendBatch<Answer>) {
    this.send = send;
  }

  /** What the server says about this item, which is JSON already. */
  add(text: string): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.waiting.push({ text, resolve, reject });
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
      if (error instanceof InvalidInput && entries.length > 1) {
        for (const entry of entries) await this.deliver([entry]); // one of them is to blame, and the others are not
      } else {
        for (const entry of entries) entry.reject(error);
      }
    }
  }
}
