/** Filters written by the UI: `term("topic", name)`, and changes to what somebody else wrote. */
import { read, type Token } from "./reading";

/** A value as it stands behind a colon: in quotes where it needs them. */
export function quoted(value: string): string {
  return /^[^\s"(),*\\]+$/.test(value) && value !== "none" ? value : `"${value.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
}

/** `topic:mail`, `error:"timed out"`. */
export function term(field: string, value: string): string {
  return `${field}:${quoted(value)}`;
}

/** The one term about the state that all jobs must meet; undefined when it is said in another way, or not at all. */
export function stateTerm(where: string): Token | undefined {
  const outside = outsideBrackets(where);
  const words = outside.map((one) => where.slice(one.start, one.end));
  if (words.includes("OR")) return undefined;
  const about = outside.filter((one, at) => /^(state|status)$/i.test(one.field) && /^[:=]$/.test(one.operator) && !/^(-|NOT)$/.test(words[at - 1] ?? ""));
  return about.length === 1 ? about[0] : undefined;
}

function outsideBrackets(where: string): Token[] {
  let depth = 0;
  return read(where).filter((one) => {
    if (one.kind !== "bracket") return depth === 0;
    depth += where[one.start] === "(" ? 1 : -1;
    return false;
  });
}

/** The same filter about jobs in one of these states; none is any. */
export function withStates(where: string, states: readonly string[]): string {
  const said = stateTerm(where);
  const wanted = states.length > 0 ? `state:${states.join(",")}` : "";
  if (said) return tidy([where.slice(0, said.start).trimEnd(), wanted, where.slice(said.end).trimStart()].filter(Boolean).join(" "));
  if (!wanted) return where.trim();
  const alone = !outsideBrackets(where).some((one) => where.slice(one.start, one.end) === "OR");
  return tidy(alone ? `${wanted} ${where}` : `${wanted} (${where.trim()})`);
}

function tidy(where: string): string {
  return where.trim().replace(/\bAND\s+AND\b/, "AND").replace(/^AND\s+|\s+AND$/g, "");
}
