/** The pages somebody came through. A cursor leads on only; this is the way back. Lost with the tab, as the first page is not. */
const MOST = 1000;

interface Step {
  /** the cursor of the page before; "" is the first page */
  before: string;
  /** how many jobs stand before this page */
  begin: number;
}

const steps = new Map<string, Step>();
const place = (where: string, after: string) => `${after} ${where}`;

export const trail = {
  went(where: string, from: string, to: string, count: number): void {
    if (steps.size >= MOST) steps.clear();
    steps.set(place(where, to), { before: from, begin: (this.begin(where, from) ?? 0) + count });
  },

  /** null: somebody followed a link to this page */
  begin(where: string, after: string): number | null {
    return after === "" ? 0 : (steps.get(place(where, after))?.begin ?? null);
  },

  before(where: string, after: string): string {
    return steps.get(place(where, after))?.before ?? "";
  },
};
