/** From what a handler did to what the server is told: pure decisions, nothing is run or sent here. */
import { TidewheelError } from "../errors.js";
import { writeJson } from "../json.js";
import { Cancel, Fail, Released, RetryAfter, Snooze, TaskError } from "./directives.js";
import type { Failure, Outcome } from "./protocol.js";
import type { Stopped } from "./stopping.js";

const LONGEST_MESSAGE = 2000;
const LONGEST_TRACEBACK = 16_000;
const LONGEST_CODE = 100;
const LONGEST_DETAILS = 16_000;
/** The longest delay that a server takes, in seconds. */
const LONGEST_DELAY = 366 * 24 * 3600;

const HALVES = /[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/g;

/** The handler returned. */
export function afterReturn(value: unknown): Outcome {
  return value === undefined || value === null ? { outcome: "complete" } : { outcome: "complete", result: value };
}

/** The handler threw. The server knows how often it may be tried again, and when. */
export function afterError(error: unknown): Outcome {
  try {
    return decided(error);
  } catch (odd) {
    return { outcome: "retry", error: describe(odd) }; // a directive made of nonsense
  }
}

function decided(error: unknown): Outcome {
  if (error instanceof Released || error instanceof Snooze) return { outcome: "release", delay: sane(error.delay) };
  if (error instanceof Cancel) return { outcome: "cancel", error: failure("job_canceled", error.message, false) };
  if (error instanceof Fail) return { outcome: "fail", error: failure(error.code, error.message, false) };
  if (error instanceof RetryAfter) {
    return { outcome: "retry", error: failure("handler_error", error.message, true), delay: sane(error.delay) };
  }
  return { outcome: "retry", error: describe(error) };
}

/** The handler was stopped from outside; undefined when there is nothing left to tell the server. */
export function afterStop(stopped: Stopped): Outcome | undefined {
  switch (stopped.reason) {
    case "lease_lost":
      return undefined;
    case "cancelled":
      return { outcome: "cancel", error: failure("job_canceled", stopped.message, false) };
    case "timeout":
      return { outcome: "retry", error: failure("job_timeout", stopped.message, true) };
    case "shutting_down":
      return { outcome: "release" };
  }
}

/**
 * What the handler returned, or said about its error, could not be sent or was refused. An error stays what it was, with
 * the reason in place of what may be to blame. Undefined where there is nothing to leave out.
 */
export function afterRefusal(refused: Outcome, why: string): Outcome | undefined {
  if (refused.outcome === "complete") return { outcome: "fail", error: failure("invalid_result", why, false) };
  if (!("error" in refused) || !refused.error) return undefined;
  const { code, message, retryable = true } = refused.error;
  return { ...refused, error: { code, message, retryable, details: dropped(why) } };
}

function describe(error: unknown): Failure {
  try {
    return described(error);
  } catch {
    return failure("handler_error", "an error whose own text could not be made", true);
  }
}

function described(error: unknown): Failure {
  if (!(error instanceof Error)) return failure("handler_error", `thrown: ${textOfThrown(error)}`, true);
  const traceback = { traceback: fitting(String(error.stack ?? ""), (text) => text.slice(-LONGEST_TRACEBACK)) };
  if (error instanceof TaskError) {
    return { ...failure(error.code, error.message, error.retryable), ...kept(error.details), ...traceback };
  }
  const code = error instanceof TidewheelError ? error.code : "handler_error";
  const retryable = !("retryable" in error && error.retryable === false);
  return { ...failure(code, error.message === "" ? error.name : `${error.name}: ${error.message}`, retryable), ...traceback };
}

/** What was thrown may be anything, and may not even have a text. */
export function textOfThrown(thrown: unknown): string {
  try {
    return String(thrown);
  } catch {
    return "something without a text";
  }
}

/** What a handler said about its error. What cannot be kept gives way to the reason, and does not cost the error. */
function kept(details: TaskError["details"]): Pick<Failure, "details"> {
  if (details === undefined) return {};
  try {
    const length = writeJson(details)?.length ?? 0;
    if (length <= LONGEST_DETAILS) return { details };
    return { details: dropped(`details are ${length} characters; the limit is ${LONGEST_DETAILS}`) };
  } catch (error) {
    return { details: dropped(textOfThrown(error)) };
  }
}

function dropped(why: string): Record<string, string> {
  return { details_dropped: fitting(why, (text) => text.slice(0, LONGEST_MESSAGE)) };
}

function failure(code: string, message: string, retryable: boolean): Failure {
  const words = fitting(String(message), (text) => text.slice(0, LONGEST_MESSAGE));
  const name = fitting(String(code), (text) => text.slice(0, LONGEST_CODE));
  return { code: name || "handler_error", message: words, retryable };
}

/** Clean and short enough. Cleaning makes text longer, and a cut may halve a character: so both twice. */
function fitting(text: string, cut: (text: string) => string): string {
  return clean(cut(clean(cut(text))));
}

/** Text every store can keep: no NUL, and no half of a character. */
function clean(text: string): string {
  return text.replaceAll("\0", "\\x00").replace(HALVES, "\uFFFD");
}

/** A delay some handler asked for, in plain JavaScript perhaps; nonsense means now. */
function sane(delay: number): number {
  const seconds = Number(delay);
  return seconds > 0 ? Math.min(seconds, LONGEST_DELAY) : 0;
}
