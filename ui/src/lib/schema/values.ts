/** Values for a schema: what a form begins with, and what is wrong with what it has. */
import { choices, isConstant, kindOf, resolve, variants, type JsonSchema } from "./schema";

export type Members = Record<string, unknown>;

/** Faults by JSON pointer below the value: "" is the value itself, "/lines/1/sku" a part of it. */
export type Faults = ReadonlyMap<string, string>;

export function isObject(value: unknown): value is Members {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function pointer(below: string, name: string | number): string {
  return `${below}/${String(name).replaceAll("~", "~0").replaceAll("/", "~1")}`;
}

const FIRST_ITEMS = 3; // most items a list begins with

/** What a field that has to be there begins with; undefined is an empty field. */
export function initial(schema: JsonSchema, root: JsonSchema, depth = 0): unknown {
  const found = resolve(schema, root);
  if ("default" in found) return found.default;
  if (depth > 8) return undefined;
  switch (kindOf(found)) {
    case "choice":
      return isConstant(found) ? choices(found)[0] : undefined;
    case "object": {
      const names = found.required ?? [];
      const made = names.map((name) => [name, initial(found.properties?.[name] ?? {}, root, depth + 1)] as const);
      return Object.fromEntries(made.filter(([, value]) => value !== undefined));
    }
    case "list":
      return Array.from({ length: Math.min(FIRST_ITEMS, found.minItems ?? 0) }, () => initial(found.items as JsonSchema, root, depth + 1));
    case "tuple":
      return found.prefixItems!.map((one) => initial(one, root, depth + 1));
    case "map":
      return {};
    case "boolean":
      return false;
    case "null":
      return null;
    default:
      return undefined;
  }
}

/** Which of a union's variants a value is, or -1. */
export function variantOf(value: unknown, all: readonly JsonSchema[], root: JsonSchema): number {
  const fitting = all.findIndex((one) => faultsOf(value, one, root).size === 0);
  if (fitting >= 0) return fitting;
  // Not yet right, but already meant: objects say by their tag what they are, others by their type.
  return all.findIndex((one) => {
    const found = resolve(one, root);
    if (!isObject(value)) return typeFits(value, found);
    const tags = Object.entries(found.properties ?? {}).filter(([, part]) => isConstant(resolve(part, root)));
    return kindOf(found) === "object" && tags.every(([name, part]) => value[name] === choices(resolve(part, root))[0]);
  });
}

function typeFits(value: unknown, schema: JsonSchema): boolean {
  switch (schema.type) {
    case "string":
      return typeof value === "string";
    case "integer":
      return typeof value === "bigint" || Number.isInteger(value);
    case "number":
      return typeof value === "number" || typeof value === "bigint";
    case "boolean":
      return typeof value === "boolean";
    case "null":
      return value === null;
    case "array":
      return Array.isArray(value);
    case "object":
      return isObject(value);
    default:
      return true;
  }
}

const nouns: Record<string, string> = { integer: "a whole number", number: "a number", string: "text", boolean: "true or false", array: "a list", object: "an object", null: "null" };

/** What is wrong with a value, by place. Not everything: the server has the last word. */
export function faultsOf(value: unknown, schema: JsonSchema, root: JsonSchema, below = "", found = new Map<string, string>()): Map<string, string> {
  const wanted = resolve(schema, root);
  const wrong = (text: string) => found.set(below, text);
  const kind = kindOf(wanted);
  if (kind === "choice") {
    if (!choices(wanted).includes(value)) wrong(value === undefined ? "Choose one" : "Is not one of the choices");
    return found;
  }
  if (kind === "union") {
    const all = variants(wanted)!;
    if (all.some((one) => faultsOf(value, one, root).size === 0)) return found;
    const meant = variantOf(value, all, root);
    if (meant < 0) wrong(value === undefined ? "Is missing" : "Fits none of what it may be");
    else faultsOf(value, all[meant]!, root, below, found);
    return found;
  }
  if (value === undefined || (value === null && kind !== "json" && kind !== "null")) {
    if (kind !== "json") wrong("Is missing");
    return found;
  }
  if (!typeFits(value, wanted)) {
    wrong(`Has to be ${nouns[String(wanted.type)]}`);
    return found;
  }
  if (typeof value === "string") {
    const length = [...value].length;
    if (length < (wanted.minLength ?? 0)) wrong(wanted.minLength === 1 ? "Has to say something" : `Needs at least ${wanted.minLength} characters`);
    if (length > (wanted.maxLength ?? Infinity)) wrong(`Has ${length} characters; at most ${wanted.maxLength}`);
    if (wanted.pattern !== undefined && !matches(value, wanted.pattern)) wrong(`Does not match ${wanted.pattern}`);
  } else if (typeof value === "number" || typeof value === "bigint") {
    if (value < (wanted.minimum ?? -Infinity)) wrong(`At least ${wanted.minimum}`);
    if (value > (wanted.maximum ?? Infinity)) wrong(`At most ${wanted.maximum}`);
    if (value <= (wanted.exclusiveMinimum ?? -Infinity)) wrong(`More than ${wanted.exclusiveMinimum}`);
    if (value >= (wanted.exclusiveMaximum ?? Infinity)) wrong(`Less than ${wanted.exclusiveMaximum}`);
  } else if (Array.isArray(value)) {
    if (value.length < (wanted.minItems ?? 0)) wrong(wanted.minItems === 1 ? "Needs an item" : `Needs at least ${wanted.minItems} items`);
    if (value.length > (wanted.maxItems ?? Infinity)) wrong(`At most ${wanted.maxItems} items`);
    value.forEach((one, index) => {
      const item = wanted.prefixItems?.[index] ?? (typeof wanted.items === "object" ? wanted.items : {});
      faultsOf(one, item, root, pointer(below, index), found);
    });
  } else if (isObject(value)) {
    for (const name of wanted.required ?? []) {
      if (value[name] === undefined && !("default" in (wanted.properties?.[name] ?? {}))) faultsOf(undefined, wanted.properties?.[name] ?? {}, root, pointer(below, name), found);
    }
    for (const [name, one] of Object.entries(value)) {
      const part = wanted.properties?.[name] ?? (typeof wanted.additionalProperties === "object" ? wanted.additionalProperties : null);
      if (part && one !== undefined) faultsOf(one, part, root, pointer(below, name), found);
    }
  }
  return found;
}

/** Patterns are Python's; one that a browser does not understand is left to the server. */
function matches(text: string, pattern: string): boolean {
  try {
    return new RegExp(pattern, "u").test(text);
  } catch {
    return true;
  }
}
