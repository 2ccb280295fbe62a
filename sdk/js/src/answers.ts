/** Answers that are no good: the server's problems, pages of proxies, and redirects, as errors. */
import { ProblemError, problemError } from "./errors.js";
import { readJson } from "./json.js";
import type { Problem } from "./shapes.js";

/** What an answer that is not a good one says. `root`: who was asked. */
export async function problemOf(response: Response, root: string): Promise<ProblemError> {
  if (isRedirect(response)) return movedError(response, root);
  const said = await response.text().catch(() => "");
  const problem = readProblem(response, said);
  const status = `${response.status} ${response.statusText}`.trimEnd();
  const detail = problem?.detail ?? `${root} answered ${status}, which is not from Tidewheel; perhaps a proxy in front of it`;
  return problemError(response.status, detail, problem, retryAfterOf(response));
}

/** The JSON of a good answer. */
export function parse(said: string, response: Response): unknown {
  try {
    return readJson(said);
  } catch {
    throw new ProblemError(response.status, "something between here and the server answered in its place: no JSON");
  }
}

/** The document; undefined when somebody else answered, as proxies do, with JSON of their own as well. */
function readProblem(response: Response, said: string): Problem | undefined {
  const [kind = ""] = (response.headers.get("Content-Type") ?? "").split(";");
  if (kind.trim().toLowerCase() !== "application/problem+json") return undefined;
  try {
    const read: unknown = JSON.parse(said);
    return typeof read === "object" && read !== null && "code" in read && "detail" in read ? (read as Problem) : undefined;
  } catch {
    return undefined; // it broke off; the status is all there is to say
  }
}

/** A browser shows nothing of a redirect, not even its status. */
function isRedirect({ type, status }: Response): boolean {
  return type === "opaqueredirect" || (status >= 300 && status < 400);
}

async function movedError(response: Response, root: string): Promise<ProblemError> {
  const { status } = response;
  await response.body?.cancel().catch(() => undefined); // or the connection would wait for somebody to read it
  const place = response.headers.get("Location");
  const where = place === null ? "elsewhere" : `on to ${place}`;
  const what = `${root} answered ${status || "with a redirect"} and sends everybody ${where}`;
  const remedy = "where the token is not shown; give the address of the server itself as url, perhaps with https";
  return new ProblemError(status, `${what}, ${remedy}`);
}

function retryAfterOf(response: Response): number | undefined {
  const said = response.headers.get("Retry-After");
  if (said === null) return undefined;
  const seconds = /^\d+$/.test(said) ? Number(said) : (Date.parse(said) - Date.now()) / 1000;
  return Number.isNaN(seconds) ? undefined : Math.max(0, seconds);
}
