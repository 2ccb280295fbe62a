/** Who is logged in. The cookie is the browser's and out of our reach; we hold the name and the CSRF token. */
import { answer, api, onLoggedOut, Problem, problemText, useCsrfToken, type Schema } from "./api/client";

type Who = Schema["SessionShape"];

/** Whether this browser has logged in before. Asking without that would only put an error into its console. */
const KEY = "tidewheel.session";

class Session {
  who = $state.raw<Who | null>(null);
  /** it ended while somebody was at work: what is on the page stays until they are back */
  ended = $state(false);
  /** false until the server has said whether somebody is logged in */
  known = $state(false);
  /** why it is not known: the server cannot be reached */
  trouble = $state("");

  constructor() {
    onLoggedOut(() => {
      if (this.who === null) return this.#forget();
      this.ended = true;
      useCsrfToken("");
    });
  }

  async find(): Promise<void> {
    this.trouble = "";
    if (localStorage.getItem(KEY) === null) {
      this.known = true;
      return;
    }
    try {
      this.#take(await answer(api.GET("/api/jobs/session")));
    } catch (error) {
      if (error instanceof Problem && error.status === 401) this.#forget();
      else this.trouble = problemText(error);
    }
    this.known = this.trouble === "";
  }

  async logIn(name: string, password: string): Promise<void> {
    this.#take(await answer(api.POST("/api/jobs/session", { body: { name, password } })));
    this.known = true;
  }

  async logOut(everywhere = false): Promise<void> {
    await answer(api.DELETE("/api/jobs/session", { params: { query: { everywhere } } }));
    this.#forget();
  }

  #take(who: Who): void {
    this.who = who.superuser ? who : null;
    this.ended = false;
    localStorage.setItem(KEY, "1");
    useCsrfToken(who.csrf_token ?? "");
  }

  #forget(): void {
    this.who = null;
    this.ended = false;
    this.known = true;
    localStorage.removeItem(KEY);
    useCsrfToken("");
  }
}

export const session = new Session();
