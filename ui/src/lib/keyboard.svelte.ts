/**
 * Shortcuts, in one place, so that the help and the palette can list them.
 *
 *     shortcut({ keys: "/", label: "Filter jobs", run: () => input.focus() });
 *
 * Keys are written as one says them: "/", "j", "Shift+R", "Mod+k" (⌘ on a Mac, Ctrl elsewhere), or two after one
 * another: "g j". A shortcut lives as long as the component that makes it. Plain letters do nothing while one types.
 */
import { untrack } from "svelte";

export interface Shortcut {
  keys: string;
  label: string;
  run: () => void;
  /** not in the help: a second way to do the same */
  hidden?: boolean;
}

const onMac = /Mac|iPhone|iPad/.test(navigator.platform);
const SEQUENCE_MILLISECONDS = 1200;

class Keyboard {
  shortcuts = $state.raw<readonly Shortcut[]>([]);
  #first = "";
  #held = 0;
  #meanwhile = "";
  #firstAt = 0;

  constructor() {
    addEventListener("keydown", (event) => this.#pressed(event));
  }

  add(added: Shortcut): () => void {
    this.shortcuts = [...this.shortcuts, added];
    return () => {
      this.shortcuts = this.shortcuts.filter((one) => one !== added);
    };
  }

  /** Nothing is run until the function that is returned is called; what is typed is kept. */
  hold(): () => void {
    this.#held += 1;
    this.#meanwhile = "";
    return () => {
      this.#held -= 1;
    };
  }

  /** What was typed during the last hold. */
  takeMeanwhile(): string {
    const typed = this.#meanwhile;
    this.#meanwhile = "";
    return typed;
  }

  #pressed(event: KeyboardEvent): void {
    if (this.#held > 0 && event.key.length === 1 && !event.metaKey && !event.ctrlKey) {
      event.preventDefault();
      this.#meanwhile += event.key;
    }
    if (this.#held > 0 || event.defaultPrevented || event.isComposing) return;
    const mod = onMac ? event.metaKey : event.ctrlKey;
    if (!mod && (event.metaKey || event.ctrlKey || event.altKey)) return;
    if (!mod && (isTyping(event.target) || document.querySelector("dialog[open]"))) return;
    const shift = event.shiftKey && event.key.length === 1 && /[a-z]/i.test(event.key) ? "Shift+" : "";
    const name = `${mod ? "Mod+" : ""}${shift}${event.key.length === 1 ? event.key.toLowerCase() : event.key}`;
    const sequence = Date.now() - this.#firstAt < SEQUENCE_MILLISECONDS ? `${this.#first} ${name}` : name;
    // The newest wins: a page may take a key over from the shell.
    const found = this.shortcuts.findLast((one) => one.keys === sequence) ?? this.shortcuts.findLast((one) => one.keys === name);
    this.#first = name;
    this.#firstAt = Date.now();
    if (found === undefined) return;
    this.#firstAt = 0;
    event.preventDefault();
    found.run();
  }
}

function isTyping(target: EventTarget | null): boolean {
  if (target instanceof HTMLInputElement && /^(checkbox|radio|button)$/.test(target.type)) return false;
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

export const keyboard = new Keyboard();

/** Call it while a component is made. */
export function shortcut(added: Shortcut): void {
  $effect(() => untrack(() => keyboard.add(added)));
}

/** The keys as they are printed on this machine's keyboard. */
export function keysAsWritten(keys: string): string[] {
  return keys.split(" ").map((one) => one.replace("Mod+", onMac ? "⌘" : "Ctrl ").replace("Shift+", "⇧").replace(/(?<![a-z])[a-z]$/i, (letter) => letter.toUpperCase()));
}
