/** Where the user is: the path below `/ui/` and the query, both in the address bar, so that every view can be shared. */

const base = new URL(document.baseURI).pathname;

class Router {
  #url = $state.raw(new URL(location.href));
  /** Grows with every navigation, for what has to start anew even if the address stays the same. */
  visit = $state(0);

  /** `""` is the overview, `"jobs"`, `"jobs/0190…"`; as it stands in the address. */
  readonly path = $derived.by(() =>
    (this.#url.pathname.startsWith(base) ? this.#url.pathname.slice(base.length) : "").replace(/\/$/, ""),
  );
  readonly query = $derived.by(() => this.#url.searchParams);

  constructor() {
    addEventListener("popstate", () => this.#arrive());
    addEventListener("click", (event) => this.#followed(event));
  }

  /** Go to a path below `/ui/`: `go("jobs?where=state:failed")`. */
  go(to: string, { replace = false }: { replace?: boolean } = {}): void {
    const url = new URL(to, document.baseURI);
    if (url.href !== location.href) history[replace ? "replaceState" : "pushState"](null, "", url);
    this.#arrive(!replace);
  }

  /** Change some parameters of the query and stay on the page; null or "" removes one. */
  set(changes: Record<string, string | null>, { replace = true }: { replace?: boolean } = {}): void {
    const url = new URL(location.href);
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === "") url.searchParams.delete(name);
      else url.searchParams.set(name, value);
    }
    if (url.href === location.href) return;
    history[replace ? "replaceState" : "pushState"](null, "", url);
    this.#arrive();
  }

  #arrive(toTop = false): void {
    const before = this.#url.pathname;
    this.#url = new URL(location.href);
    this.visit += 1;
    if (toTop && before !== this.#url.pathname) scrollTo(0, 0);
  }

  /** Links to our own pages are followed without loading; what a new tab or a download wants is left alone. */
  #followed(event: MouseEvent): void {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element).closest?.("a");
    if (!link?.href || link.target || link.hasAttribute("download")) return;
    const url = new URL(link.href);
    if (url.origin !== location.origin || !url.pathname.startsWith(base)) return;
    event.preventDefault();
    this.go(url.href);
  }
}

export const router = new Router();

/** The address of a list of jobs. */
export function jobsHref(where = ""): string {
  return where ? `jobs?${new URLSearchParams({ where })}` : "jobs";
}

export function jobHref(id: string): string {
  return `jobs/${encodeURIComponent(id)}`;
}
