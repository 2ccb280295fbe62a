/** Light, dark, or as the system has it. Remembered in this browser. */
export type ThemeName = "system" | "light" | "dark";

const KEY = "tidewheel.theme";

class Theme {
  chosen = $state<ThemeName>(read());
  #system = matchMedia("(prefers-color-scheme: dark)");
  #systemDark = $state(this.#system.matches);
  readonly dark = $derived(this.chosen === "dark" || (this.chosen === "system" && this.#systemDark));

  constructor() {
    this.#system.addEventListener("change", (event) => (this.#systemDark = event.matches));
    this.#apply();
  }

  choose(name: ThemeName): void {
    this.chosen = name;
    localStorage.setItem(KEY, name);
    this.#apply();
  }

  #apply(): void {
    if (this.chosen === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = this.chosen;
  }
}

function read(): ThemeName {
  const kept = localStorage.getItem(KEY);
  return kept === "light" || kept === "dark" ? kept : "system";
}

export const theme = new Theme();
