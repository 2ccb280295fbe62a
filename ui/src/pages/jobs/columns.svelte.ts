/**
 * The columns of the list: which there are, and which are shown in this browser.
 * Widths are fixed, so that nothing moves when figures change; what is left over goes to `detail`, or else to the task.
 */
export const columns = {
  topic: { label: "Topic", rem: 9 },
  id: { label: "ID", rem: 7 },
  created: { label: "Created", rem: 6.5 },
  due: { label: "Due", rem: 6.5 },
  duration: { label: "Duration", rem: 6, figure: true },
  attempt: { label: "Attempt", rem: 5, figure: true },
  detail: { label: "Details", rem: 18 },
  error: { label: "Last error", rem: 16 },
  progress: { label: "Progress", rem: 8 },
  worker: { label: "Worker", rem: 9 },
  key: { label: "Key", rem: 8 },
  correlation: { label: "Correlation", rem: 8 },
  tenant: { label: "Tenant", rem: 7 },
  priority: { label: "Priority", rem: 5, figure: true },
} as const satisfies Record<string, { label: string; rem: number; figure?: boolean }>;

export type ColumnName = keyof typeof columns;
export const columnNames = Object.keys(columns) as ColumnName[];
const usual: readonly ColumnName[] = ["topic", "id", "created", "duration", "attempt", "detail"];
const KEY = "tidewheel.jobs.columns";

/** Only names we know, in our order: what is kept may come from another version. */
export function known(names: unknown): ColumnName[] {
  return Array.isArray(names) ? columnNames.filter((name) => names.includes(name)) : [...usual];
}

class ShownColumns {
  names = $state.raw<readonly ColumnName[]>(kept());

  show(names: readonly ColumnName[]): void {
    this.names = known(names);
    localStorage.setItem(KEY, JSON.stringify(this.names));
  }

  toggle(name: ColumnName): void {
    this.show(this.names.includes(name) ? this.names.filter((one) => one !== name) : [...this.names, name]);
  }

  reset(): void {
    this.show(usual);
  }
}

function kept(): ColumnName[] {
  try {
    return known(JSON.parse(localStorage.getItem(KEY) ?? "null"));
  } catch {
    return [...usual]; // not ours: somebody else wrote there
  }
}

export const shownColumns = new ShownColumns();
