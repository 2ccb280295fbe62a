/** Filters that have a name, and those used lately. Kept in this browser; what one shares is the address. */
import { known, type ColumnName } from "./columns.svelte";

export interface View {
  name: string;
  where: string;
  columns: readonly ColumnName[];
}

const VIEWS = "tidewheel.jobs.views";
const RECENT = "tidewheel.jobs.recent";
const MOST_VIEWS = 50;
const MOST_RECENT = 8;

/** For the first day, and as examples. */
export const readyMade: readonly Omit<View, "columns">[] = [
  { name: "Failed in the last hour", where: "state:failed finished<1h" },
  { name: "Running for over 5 minutes", where: "state:running started>5m" },
  { name: "Due for over 10 minutes", where: "state:pending due>10m" },
  { name: "Retried more than twice", where: "attempts>2 -state:completed" },
  { name: "Due in the next hour", where: "state:delayed due<+1h" },
];

class Views {
  saved = $state.raw<readonly View[]>(read(VIEWS).filter(isView).map((one) => ({ ...one, columns: known(one.columns) })));
  recent = $state.raw<readonly string[]>(read(RECENT).filter((one) => typeof one === "string"));

  /** A view of the same name is replaced. */
  save(view: View): void {
    this.#keep([...this.saved.filter((one) => one.name !== view.name), view].sort((a, b) => a.name.localeCompare(b.name)).slice(0, MOST_VIEWS));
  }

  rename(view: View, name: string): void {
    this.#keep(this.saved.filter((one) => one !== view && one.name !== name));
    this.save({ ...view, name });
  }

  remove(view: View): void {
    this.#keep(this.saved.filter((one) => one !== view));
  }

  used(where: string): void {
    if (!where) return;
    this.recent = [where, ...this.recent.filter((one) => one !== where)].slice(0, MOST_RECENT);
    localStorage.setItem(RECENT, JSON.stringify(this.recent));
  }

  #keep(views: readonly View[]): void {
    this.saved = views;
    localStorage.setItem(VIEWS, JSON.stringify(views));
  }
}

function isView(one: unknown): one is View {
  return typeof one === "object" && one !== null && typeof (one as View).name === "string" && typeof (one as View).where === "string";
}

function read(key: string): unknown[] {
  try {
    const kept: unknown = JSON.parse(localStorage.getItem(key) ?? "[]");
    return Array.isArray(kept) ? kept : [];
  } catch {
    return []; // not ours: somebody else wrote there
  }
}

export const views = new Views();
