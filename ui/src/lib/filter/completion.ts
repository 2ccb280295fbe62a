/** What could stand where the caret is: fields, operators, values. */
import type { Schema } from "$lib/api/client";
import { read, type Token } from "./reading";
import { quoted } from "./writing";
import { states } from "$lib/states";

export type Field = Schema["FieldShape"];

export interface Offer {
  /** what is put in place of `from` to `to` */
  insert: string;
  note: string;
}

export interface Offers {
  from: number;
  to: number;
  items: Offer[];
}

export interface Known {
  fields: readonly Field[];
  /** values by the name of their field */
  values: Readonly<Record<string, readonly string[]>>;
}

const MOST = 9;
const OPERATORS: Record<string, string> = { ":": "is", "!=": "is not", "~": "contains", ">": "more than, after", "<": "less than, before", ">=": "at least", "<=": "at most" };
/** A duration is an age: more of it is longer ago. */
const OF_TIMES: Record<string, string> = { ...OPERATORS, ">": "longer ago than, after a date", "<": "more recent than, before a date" };
const TIMES = ["1h", "24h", "7d", "today", "yesterday", "+1h"];
const DURATIONS = ["5m", "1h", "24h", "7d"];

export function complete(text: string, caret: number, known: Known): Offers {
  const token = read(text).find((one) => one.start < caret && caret <= one.end && one.kind !== "bracket" && one.kind !== "minus");
  if (token?.kind === "term") return ofValue(token, caret, known);
  // "state" with nothing behind it, or the beginning of anything
  const word = token?.kind === "word" ? text.slice(token.start, caret) : "";
  const place = { from: token && word ? token.start : caret, to: token && word ? token.end : caret };
  if (word.startsWith('"')) return { ...place, items: [] };
  const field = fieldNamed(word, known);
  const operators = field?.kind === "time" ? OF_TIMES : OPERATORS;
  if (field && word) return { ...place, items: field.operators.filter((one) => operators[one]).map((one) => ({ insert: word + one, note: operators[one]! })) };
  const fields = known.fields
    .filter((one) => [one.name, ...one.aliases].some((name) => name.startsWith(word.toLowerCase())))
    .map((one) => ({ insert: one.name + (one.kind === "payload" ? "." : one.kind === "duration" ? ">" : one.operators[0]), note: one.help }));
  const items = word ? [...fields, ...byValue(word, known)] : fields;
  return { ...place, items: items.slice(0, word ? MOST : 30) };
}

/** `mail` may mean the topic of that name, `fail` the state. */
function byValue(word: string, known: Known): Offer[] {
  return ["state", "topic", "task"].flatMap((field) =>
    valuesOf(field, "", known)
      .filter((one) => matches(one.insert, word))
      .sort((one, other) => Number(begins(other.insert, word)) - Number(begins(one.insert, word)))
      .map((one) => ({ insert: `${field}:${quoted(one.insert)} `, note: one.note || field })),
  );
}

function ofValue(token: Token, caret: number, known: Known): Offers {
  const at = token.values.find((one) => one.start <= caret && caret <= one.end);
  const place = { from: at?.start ?? caret, to: at?.end ?? caret };
  const field = fieldNamed(token.field.split(/[.[]/)[0]!, known);
  const typed = at?.text ?? "";
  const items = valuesOf(field?.name ?? "", field?.kind ?? "", known)
    .filter((one) => matches(one.insert, typed) && one.insert !== typed)
    .sort((one, other) => Number(begins(other.insert, typed)) - Number(begins(one.insert, typed)))
    .map((one) => ({ insert: `${quoted(one.insert)} `, note: one.note }));
  return { ...place, items: items.slice(0, MOST) };
}

function valuesOf(field: string, kind: string, known: Known): Offer[] {
  if (field === "state") return Object.entries(states).map(([name, look]) => ({ insert: name, note: look.help }));
  const values = kind === "time" ? TIMES : kind === "duration" ? DURATIONS : (known.values[field] ?? []);
  return values.map((insert) => ({ insert, note: kind === "time" && /^\d/.test(insert) ? "ago" : "" }));
}

function fieldNamed(name: string, known: Known): Field | undefined {
  return known.fields.find((one) => [one.name, ...one.aliases].includes(name.toLowerCase()));
}

function matches(value: string, typed: string): boolean {
  return value.toLowerCase().includes(typed.toLowerCase());
}

/** What begins as it is typed is meant before what has it somewhere. */
function begins(value: string, typed: string): boolean {
  return value.toLowerCase().startsWith(typed.toLowerCase());
}
