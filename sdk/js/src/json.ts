/**
 * JSON to and from a server, with integers kept exactly.
 *
 * Stores keep integers of 64 bits, a JavaScript number is exact up to 2^53. Larger integers that arrive become a `bigint`,
 * and a `bigint` is sent as an integer. A number that may have been rounded already is refused.
 */

/** Only text with so many digits in a row can hold an integer that a number cannot. */
const LONG_NUMBER = /\d{16}/;
const INTEGER = /^-?\d+$/;
/** A string, or a number. */
const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*/g;
/** Marks a string that stands for an integer while text is parsed or written. No payload can hold it: servers refuse NUL. */
const MARK = "\u0000integer:";
const WRITTEN_MARK = /"\\u0000integer:(-?\d+)"/g;
const SMALLEST = -(2n ** 63n);
const LARGEST = 2n ** 63n - 1n;

/** Parse JSON. Integers beyond ±(2^53 - 1) become a `bigint`. */
export function readJson(text: string): unknown {
  if (!LONG_NUMBER.test(text)) return JSON.parse(text);
  const marked = text.replace(TOKEN, (found) =>
    INTEGER.test(found) && !Number.isSafeInteger(Number(found)) ? `"\\u0000integer:${found}"` : found,
  );
  return JSON.parse(marked, (_, value: unknown) =>
    typeof value === "string" && value.startsWith(MARK) ? BigInt(value.slice(MARK.length)) : value,
  );
}

/** A value as JSON; undefined where JSON has no word for it. A `bigint` is written as an integer. */
export function writeJson(value: unknown): string | undefined {
  try {
    const text = JSON.stringify(value) as string | undefined;
    if (text === undefined || !LONG_NUMBER.test(text)) return text;
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // JSON.stringify refuses a bigint; anything else it refuses again below
  }
  return (JSON.stringify(value, markInteger) as string | undefined)?.replace(WRITTEN_MARK, "$1");
}

function markInteger(_: string, value: unknown): unknown {
  if (typeof value === "bigint") {
    if (value >= SMALLEST && value <= LARGEST) return `${MARK}${value}`;
    throw new RangeError(`${value} has more than 64 bits, which no store keeps; send it as text`);
  }
  // From 1e21 on numbers are written with an exponent, and read as what they are.
  if (typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value) && Math.abs(value) < 1e21) {
    throw new RangeError(`${value} is beyond 2^53, where numbers are rounded; send a bigint (${value}n) or text`);
  }
  return value;
}

/** Half of a character, as JSON writes it; or any other escape, which is passed over, so that "\\ud800" stays what it is. */
const ESCAPE = /\\(?:(ud[89a-f]..)|.)/g;

/**
 * A value as JSON; undefined where JSON has no word for it. Half a character gives way to the sign for one that is missing,
 * as in errors: servers refuse it, and whatever was sent with it.
 */
export function jsonOf(value: unknown): string | undefined {
  const text = writeJson(value);
  if (text?.includes("\\ud") !== true) return text;
  return text.replace(ESCAPE, (found, half: string | undefined) => (half === undefined ? found : "\uFFFD"));
}

/** What somebody wants to be kept, as JSON; nothing at all is null. `what` it is, for who gave something else. */
export function storable(what: string, value: unknown): string {
  const text = jsonOf(value ?? null);
  if (text !== undefined) return text;
  throw new TypeError(`${what} is a ${typeof value}, for which JSON has no word; nothing was saved: give data, or null`);
}
