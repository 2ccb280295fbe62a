/** Where in a JSON text something stands, so that what the server says about a member can be shown beside it. */

export interface Place {
  start: number;
  end: number;
}

/** The value a JSON pointer leads to, or the innermost on the way there that the text has. */
export function placeOf(text: string, pointer: readonly string[]): Place {
  let at = 0;
  const space = (): void => {
    while (/\s/.test(text[at] ?? "")) at += 1;
  };
  const string = (): string => {
    const start = at++;
    while (at < text.length && text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
    at += 1;
    return JSON.parse(text.slice(start, at)) as string;
  };
  /** Passes over a value; answers the place of what is wanted inside of it. */
  const value = (wanted: readonly string[] | null): Place | null => {
    space();
    const start = at;
    let inner: Place | null = null;
    const opening = text[at];
    if (opening === "{" || opening === "[") {
      const closing = opening === "{" ? "}" : "]";
      at += 1;
      for (let index = 0; ; index += 1) {
        space();
        if (text[at] === closing || at >= text.length) break;
        let name = String(index);
        if (opening === "{") {
          name = string();
          space();
          at += 1; // the colon
        }
        const found = value(wanted?.[0] === name ? wanted.slice(1) : null);
        inner = found ?? inner;
        space();
        if (text[at] === ",") at += 1;
      }
      at += 1;
    } else if (opening === '"') string();
    else while (at < text.length && !/[\s,\]}]/.test(text[at]!)) at += 1;
    return wanted === null ? null : (inner ?? { start, end: at });
  };
  return value(pointer) ?? { start: 0, end: text.length };
}

/** `#/payload/items/0/sku` as names, without the first, which is that of the field. */
export function partsOf(pointer: string): string[] {
  return pointer.replace(/^#?\//, "").split("/").slice(1).map((part) => decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~"));
}

export function lineAt(text: string, offset: number): number {
  return text.slice(0, offset).split("\n").length;
}
