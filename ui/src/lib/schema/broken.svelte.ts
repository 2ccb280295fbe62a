/** The boxes of a form whose text is not JSON yet: it cannot be sent before there are none. */
import { getContext, setContext } from "svelte";

const KEY = Symbol("broken");

class Broken {
  places = $state.raw<readonly string[]>([]);

  has(place: string): boolean {
    return this.places.includes(place);
  }

  mark(place: string, yes: boolean): void {
    if (yes !== this.has(place)) this.places = yes ? [...this.places, place] : this.places.filter((one) => one !== place);
  }
}

/** Call it while the form is made. */
export function watchBroken(): Broken {
  return setContext(KEY, new Broken());
}

export function broken(): Broken {
  return getContext(KEY);
}
