/**
 * A ranking that can be read while its figures change: the order is settled anew every few seconds, and never while
 * the pointer or the focus is in the list; at once when another order is asked for.
 *
 *     const order = new Steady(() => rows, (row) => row.name, (one, other) => other.depth - one.depth);
 *     <ul onpointerenter={order.hold} onpointerleave={order.release}> {#each order.rows as row (row.name)} …
 */
const SETTLED_MILLISECONDS = 10_000;

export class Steady<T> {
  #rows: () => readonly T[];
  #name: (row: T) => string;
  #compare: (one: T, other: T) => number;
  #asked: () => unknown;
  #answered: unknown;
  #names: readonly string[] = [];
  #settledAt = 0;
  #held = false;

  constructor(rows: () => readonly T[], name: (row: T) => string, compare: (one: T, other: T) => number, asked: () => unknown = () => "") {
    this.#rows = rows;
    this.#name = name;
    this.#compare = compare;
    this.#asked = asked;
  }

  readonly rows = $derived.by((): T[] => {
    const rows = this.#rows();
    const now = Date.now();
    const asked = this.#asked();
    const sorted = [...rows].sort((one, other) => this.#compare(one, other) || (this.#name(one) < this.#name(other) ? -1 : 1));
    if (this.#names.length === 0 || asked !== this.#answered || (!this.#held && now - this.#settledAt >= SETTLED_MILLISECONDS)) {
      this.#settledAt = now;
      this.#answered = asked;
      this.#names = sorted.map(this.#name);
      return sorted;
    }
    const place = new Map(this.#names.map((name, index) => [name, index]));
    // What is new comes behind those that have a place.
    const ordered = sorted.sort((one, other) => (place.get(this.#name(one)) ?? Infinity) - (place.get(this.#name(other)) ?? Infinity) || 0);
    this.#names = ordered.map(this.#name);
    return ordered;
  });

  hold = (): void => {
    this.#held = true;
  };

  release = (): void => {
    this.#held = false;
  };
}
