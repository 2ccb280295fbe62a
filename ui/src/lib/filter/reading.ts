/**
 * The filter language (docs/reference/filter-language.md), read as far as an editor needs it: what stands where.
 * Whether it means anything is for the server to say; here nothing is ever refused.
 */

export interface Value {
  start: number;
  end: number;
  /** without quotes and backslashes */
  text: string;
}

export interface Token {
  kind: "term" | "word" | "keyword" | "bracket" | "minus";
  start: number;
  end: number;
  /** of a term: `payload.user.id` */
  field: string;
  operator: string;
  values: Value[];
}

const SPACE = /\s*/y;
const KEYWORD = /(AND|OR|NOT)(?=[\s"()]|$)/y;
const FIELD = /[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*|\[\d{1,9}\]|\["(?:[^"\\]|\\.)*"\])*/y;
const OPERATOR = /!=|<=|>=|[:=<>~]/y;
const VALUE = /"(?:[^"\\]|\\.)*(?:"|$)|[^\s"(),]+/y;
const WORD = /"(?:[^"\\]|\\.)*(?:"|$)|[^\s"()]+/y;

function matchAt(pattern: RegExp, text: string, at: number): string {
  pattern.lastIndex = at;
  return pattern.exec(text)?.[0] ?? "";
}

function unquoted(written: string): string {
  const inside = /^"((?:[^"\\]|\\.)*)/.exec(written)?.[1];
  return inside === undefined ? written : inside.replaceAll(/\\(.)/g, "$1");
}

export function read(text: string): Token[] {
  const found: Token[] = [];
  let at = 0;
  const take = (kind: Token["kind"], length: number) => {
    const token: Token = { kind, start: at, end: at + length, field: "", operator: "", values: [] };
    found.push(token);
    at += length;
    return token;
  };
  for (;;) {
    at += matchAt(SPACE, text, at).length;
    if (at >= text.length) return found;
    if ("()".includes(text[at]!)) {
      take("bracket", 1);
      continue;
    }
    if (text[at] === "-") {
      take("minus", 1);
      continue;
    }
    const keyword = matchAt(KEYWORD, text, at);
    if (keyword) {
      take("keyword", keyword.length);
      continue;
    }
    const field = matchAt(FIELD, text, at);
    const gap = field ? matchAt(SPACE, text, at + field.length).length : 0;
    const operator = field ? matchAt(OPERATOR, text, at + field.length + gap) : "";
    if (operator) {
      const token = take("term", field.length + gap + operator.length);
      token.field = field;
      token.operator = operator;
      readValues(text, token);
      at = token.end;
      continue;
    }
    take("word", Math.max(1, matchAt(WORD, text, at).length));
  }
}

function readValues(text: string, token: Token): void {
  let at = token.end;
  for (;;) {
    const gap = matchAt(SPACE, text, at).length;
    const written = matchAt(VALUE, text, at + gap);
    if (!written) return;
    const start = at + gap;
    token.values.push({ start, end: start + written.length, text: unquoted(written) });
    token.end = at = start + written.length;
    const more = /\s*,/y;
    const comma = matchAt(more, text, at);
    if (!comma) return;
    token.end = at += comma.length;
  }
}
