/** JSON on its way to a server. */

/** Half of a character, as JSON writes it; or any other escape, which is passed over, so that "\\ud800" stays what it is. */
const ESCAPE = /\\(?:(ud[89a-f]..)|.)/g;

/**
 * A value as JSON; undefined where JSON has no word for it. Half a character gives way to the sign for one that is missing,
 * as in errors: servers refuse it, and whatever was sent with it.
 */
export function jsonOf(value: unknown): string | undefined {
  const text = JSON.stringify(value) as string | undefined;
  if (text?.includes("\\ud") !== true) return text;
  return text.replace(ESCAPE, (found, half: string | undefined) => (half === undefined ? found : "\uFFFD"));
}

/** What somebody wants to be kept, as JSON; nothing at all is null. `what` it is, for who gave something else. */
export function storable(what: string, value: unknown): string {
  const text = jsonOf(value ?? null);
  if (text !== undefined) return text;
  throw new TypeError(`${what} is a ${typeof value}, for which JSON has no word; nothing was saved: give data, or null`);
}
