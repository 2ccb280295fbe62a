/** Which jobs somebody chose: some in sight, or everything that matches. */
import { SvelteSet } from "svelte/reactivity";

export class Selection {
  readonly ids = new SvelteSet<string>();
  /** everything that matches, in sight or not */
  everything = $state(false);
  #last = "";

  /** Choose or leave one; with `range` all between it and the one before it. */
  toggle(id: string, order: readonly string[], range = false): void {
    const [from, to] = [order.indexOf(this.#last), order.indexOf(id)];
    const on = !this.ids.has(id);
    const meant = range && from >= 0 ? order.slice(Math.min(from, to), Math.max(from, to) + 1) : [id];
    for (const one of meant) {
      if (on || range) this.ids.add(one);
      else this.ids.delete(one);
    }
    this.everything = false;
    this.#last = id;
  }

  all(ids: readonly string[], on: boolean): void {
    this.clear();
    if (on) for (const id of ids) this.ids.add(id);
  }

  clear(): void {
    this.ids.clear();
    this.everything = false;
    this.#last = "";
  }
}
