/** Short words about what was done, with a way back where there is one. */
export interface Toast {
  id: number;
  text: string;
  kind: "done" | "trouble";
  undo?: () => void | Promise<void>;
  /** where to see what came of it */
  link?: { href: string; text: string };
  /** when it goes by itself */
  until: number;
}

const MILLISECONDS = { done: 7000, trouble: 14_000 }; // what went wrong takes longer to read
const LEAVING_MILLISECONDS = 3000; // after the pointer has left
const MOST = 4;

class Toasts {
  shown = $state.raw<readonly Toast[]>([]);
  #next = 1;
  #held = false;
  #timer = 0;

  done(text: string, undo?: Toast["undo"], link?: Toast["link"]): void {
    this.#show("done", text, undo, link);
  }

  trouble(text: string): void {
    this.#show("trouble", text);
  }

  close(id: number): void {
    this.shown = this.shown.filter((one) => one.id !== id);
  }

  /** Nothing goes while somebody reads, or is about to click. */
  hold(): void {
    this.#held = true;
  }

  release(): void {
    if (!this.#held) return;
    this.#held = false;
    const soon = Date.now() + LEAVING_MILLISECONDS;
    this.shown = this.shown.map((one) => ({ ...one, until: Math.max(one.until, soon) }));
  }

  #show(kind: Toast["kind"], text: string, undo?: Toast["undo"], link?: Toast["link"]): void {
    this.shown = [...this.shown.slice(1 - MOST), { id: this.#next++, text, kind, undo, link, until: Date.now() + MILLISECONDS[kind] }];
    clearInterval(this.#timer);
    this.#timer = setInterval(() => this.#sweep(), 500);
  }

  #sweep(): void {
    if (!this.#held && this.shown.some((one) => one.until <= Date.now())) this.shown = this.shown.filter((one) => one.until > Date.now());
    if (this.shown.length === 0) {
      this.#held = false;
      clearInterval(this.#timer);
    }
  }
}

export const toasts = new Toasts();
