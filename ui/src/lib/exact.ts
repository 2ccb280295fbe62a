/**
 * JSON whose numbers stay what they are.
 *
 * Bodies of jobs have integers of 64 bits. A number of JavaScript has 53, and would show another order number than the
 * job has, and write it into the next one. What does not fit is a bigint here; browsers that cannot say how a number
 * was written (before 2025) round it, as they always did.
 */

interface Source {
  source?: string;
}
type Reviver = (this: unknown, name: string, value: unknown, context?: Source) => unknown;

const integer = /^-?\d+$/;
// Newer than the library that TypeScript knows.
const rawJson = (JSON as unknown as { rawJSON?: (text: string) => unknown }).rawJSON;

const revive: Reviver = (_, value, context) =>
  typeof value === "number" && !Number.isSafeInteger(value) && rawJson && context?.source && integer.test(context.source) ? BigInt(context.source) : value;

export function readExactly<T>(text: string): T {
  return JSON.parse(text, revive as Parameters<typeof JSON.parse>[1]) as T;
}

/** With two spaces, for people. What is no JSON at all is null. */
export function writeExactly(value: unknown): string {
  return JSON.stringify(value, (_, one: unknown) => (typeof one === "bigint" ? rawJson!(String(one)) : one), 2) ?? "null";
}
