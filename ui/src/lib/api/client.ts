/**
 * The HTTP API, typed by its OpenAPI document. Everything the UI knows comes through here or through live.svelte.ts.
 *
 *     const page = await answer(api.GET("/api/jobs", { params: { query: { where: "state:failed" } } }));
 */
import type { Client } from "openapi-fetch";
import { clock } from "../clock.svelte";
import type { components, paths } from "./schema";

export type Schema = components["schemas"];
export type ProblemDocument = Schema["ProblemDocument"];

/** Where the server is mounted: the UI lives in `ui/` below it. Without a slash at the end. */
export const root = new URL("..", document.baseURI).href.replace(/\/$/, "");

/** What the server said instead of an answer, or that it could not be reached. */
export class Problem extends Error {
  readonly status: number;
  readonly code: string;
  readonly document: ProblemDocument | undefined;

  constructor(status: number, message: string, code = "", document?: ProblemDocument) {
    super(message);
    this.status = status;
    this.code = code;
    this.document = document;
  }
}

let csrfToken = "";
let loggedOut = false;
let whenLoggedOut: () => void = () => {};

/** The token every change has to carry; given at login, "" after it. */
export function useCsrfToken(token: string): void {
  csrfToken = token;
  loggedOut = token === "";
}

/** What happens when the session has ended: the API says so with 401 to whatever is asked next. */
export function onLoggedOut(tell: () => void): void {
  whenLoggedOut = tell;
}

const SESSION = "/api/jobs/session";

/** What a call may be given; the types of `api` say which of it each path wants. */
interface Wish {
  params?: { query?: Record<string, unknown>; path?: Record<string, unknown> };
  body?: unknown;
  bodySerializer?: (body: unknown) => string;
  parseAs?: "text";
  signal?: AbortSignal;
}

async function call(method: string, path: string, wish: Wish = {}): Promise<Answered<unknown>> {
  // What goes on reading in the background would only be refused, again and again.
  if (loggedOut && path !== SESSION) throw new Problem(401, "The session has ended.", "not_authenticated");
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(wish.params?.path?.[name])));
  const query = Object.entries(wish.params?.query ?? {}).filter(([, value]) => value !== undefined && value !== null);
  const text = query.length ? `?${new URLSearchParams(query.map(([name, value]) => [name, String(value)]))}` : "";
  const sent = Date.now();
  const response = await fetch(root + filled + text, {
    method,
    signal: wish.signal,
    credentials: "same-origin",
    headers: { ...(method !== "GET" && { "X-CSRF-Token": csrfToken }), ...(wish.body !== undefined && { "Content-Type": "application/json" }) },
    body: wish.body === undefined ? undefined : (wish.bodySerializer ?? JSON.stringify)(wish.body),
  });
  clock.heard(response.headers.get("Date"), sent);
  const said = await response.text();
  if (response.ok) return { data: wish.parseAs === "text" || !said ? said : JSON.parse(said), response };
  try {
    return { error: JSON.parse(said), response };
  } catch {
    return { error: said, response }; // a proxy's page, not ours
  }
}

type Method = "GET" | "POST" | "PUT" | "DELETE";

/** The client of openapi-fetch as far as its types go; the few lines of it that we need are ours, and a tenth of its size. */
export const api = {
  GET: (path: string, wish?: Wish) => call("GET", path, wish),
  POST: (path: string, wish?: Wish) => call("POST", path, wish),
  PUT: (path: string, wish?: Wish) => call("PUT", path, wish),
  DELETE: (path: string, wish?: Wish) => call("DELETE", path, wish),
} as unknown as Pick<Client<paths>, Method>;

interface Answered<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** The answer itself, or a Problem to catch. */
export async function answer<T>(asked: Promise<Answered<T>>): Promise<T> {
  let answered: Answered<T>;
  try {
    answered = await asked;
  } catch (error) {
    if (error instanceof Problem || (error instanceof DOMException && error.name === "AbortError")) throw error;
    if (error instanceof SyntaxError) throw new Problem(0, "Something between here and the server answered in its place.", "not_ours");
    throw new Problem(0, "The server cannot be reached.", "unreachable");
  }
  const { data, error, response } = answered;
  if (response.ok) return data as T;
  const document = isProblem(error) ? error : undefined;
  const code = document?.code ?? "";
  if (response.status === 401) whenLoggedOut();
  throw new Problem(response.status, document?.detail ?? `The server answered ${response.status}.`, code, document);
}

function isProblem(value: unknown): value is ProblemDocument {
  return typeof value === "object" && value !== null && "detail" in value && "type" in value;
}

/** What to tell a person about something caught. */
export function problemText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
