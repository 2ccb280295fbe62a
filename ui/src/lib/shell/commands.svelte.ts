/**
 * What the palette offers: the pages always, and what the page in front adds while it is shown.
 *
 *     command({ text: "Requeue this job", run: requeue });
 */
import { untrack } from "svelte";

export interface Command {
  text: string;
  /** a word on the right: what kind of thing it is */
  note?: string;
  run: () => void;
}

class Commands {
  offered = $state.raw<readonly Command[]>([]);

  add(added: Command): () => void {
    this.offered = [...this.offered, added];
    return () => {
      this.offered = this.offered.filter((one) => one !== added);
    };
  }
}

export const commands = new Commands();

/** Call it while a component is made; it is offered as long as the component lives. */
export function command(added: Command): void {
  $effect(() => untrack(() => commands.add(added)));
}
