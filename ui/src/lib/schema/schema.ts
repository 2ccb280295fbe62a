/**
 * JSON Schema as msgspec and pydantic write it: what kind of thing a schema describes, in words and for a form.
 *
 * Whatever is not understood here is a thing of its own kind, "json": shown as it is, and edited as text. The server
 * decides what fits; what is checked here only saves the way there.
 */
export interface JsonSchema {
  $ref?: string;
  $defs?: Record<string, JsonSchema>;
  title?: string;
  description?: string;
  type?: string | string[];
  format?: string;
  contentEncoding?: string;
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  examples?: unknown[];
  anyOf?: JsonSchema[];
  oneOf?: JsonSchema[];
  allOf?: JsonSchema[];
  properties?: Record<string, JsonSchema>;
  required?: string[];
  additionalProperties?: boolean | JsonSchema;
  propertyNames?: JsonSchema;
  items?: boolean | JsonSchema;
  prefixItems?: JsonSchema[];
  minItems?: number;
  maxItems?: number;
  uniqueItems?: boolean;
  minLength?: number;
  maxLength?: number;
  pattern?: string;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  multipleOf?: number;
  minProperties?: number;
  maxProperties?: number;
}

export type Kind = "text" | "integer" | "number" | "boolean" | "choice" | "null" | "object" | "map" | "list" | "tuple" | "union" | "json";

const MOST_REFERENCES = 20; // of one to the next, before it is no schema but a circle

/** The schema itself: references followed, and what stands beside them kept. */
export function resolve(schema: JsonSchema, root: JsonSchema): JsonSchema {
  let found = schema;
  for (let step = 0; step < MOST_REFERENCES; step += 1) {
    const { $ref, allOf, ...beside } = found;
    if ($ref) found = { ...at(root, $ref), ...beside };
    else if (allOf) found = merged([...allOf.map((one) => resolve(one, root)), beside]);
    else if (Array.isArray(found.type)) {
      const { type, default: without, description, ...rest } = found;
      return { anyOf: type.map((one) => ({ ...rest, type: one })), description, ...("default" in found ? { default: without } : {}) };
    } else return found;
  }
  return {};
}

function at(root: JsonSchema, pointer: string): JsonSchema {
  let found: unknown = root;
  for (const step of pointer.replace(/^#\/?/, "").split("/")) {
    found = (found as Record<string, unknown> | undefined)?.[decodeURIComponent(step).replaceAll("~1", "/").replaceAll("~0", "~")];
  }
  return (found as JsonSchema | undefined) ?? {};
}

function merged(parts: JsonSchema[]): JsonSchema {
  return parts.reduce((all, one) => ({
    ...all,
    ...one,
    ...(all.properties || one.properties ? { properties: { ...all.properties, ...one.properties } } : {}),
    ...(all.required || one.required ? { required: [...(all.required ?? []), ...(one.required ?? [])] } : {}),
  }));
}

export function variants(schema: JsonSchema): JsonSchema[] | null {
  return schema.anyOf ?? schema.oneOf ?? null;
}

/** Of a schema that is resolved. */
export function kindOf(schema: JsonSchema): Kind {
  if (schema.enum ?? "const" in schema) return "choice";
  if (variants(schema)) return "union";
  switch (schema.type) {
    case "string":
      return "text";
    case "integer":
    case "number":
    case "boolean":
    case "null":
      return schema.type;
    case "array":
      if (schema.prefixItems) return "tuple";
      return typeof schema.items === "object" ? "list" : "json";
    case "object":
      if (schema.properties && Object.keys(schema.properties).length > 0) return "object";
      if (schema.additionalProperties === false) return "object";
      return typeof schema.additionalProperties === "object" ? "map" : "json";
    default:
      return "json";
  }
}

export function choices(schema: JsonSchema): unknown[] {
  return schema.enum ?? [schema.const];
}

export function isConstant(schema: JsonSchema): boolean {
  return kindOf(schema) === "choice" && choices(schema).length === 1;
}

/** What a field offers when there is one thing it can be beside null: that thing. */
export function orNull(schema: JsonSchema, root: JsonSchema): JsonSchema | null {
  const all = (variants(schema) ?? []).map((one) => resolve(one, root));
  const others = all.filter((one) => one.type !== "null");
  return others.length === 1 && others.length < all.length ? others[0]! : null;
}

const formats: Record<string, string> = {
  "date-time": "date and time",
  date: "date",
  time: "time",
  duration: "duration",
  uuid: "UUID",
  decimal: "decimal number",
  email: "e-mail address",
  uri: "URL",
};

/** integer, list of Line, “daily” or “weekly”, Card or Transfer */
export function typeWords(schema: JsonSchema, root: JsonSchema, depth = 0): string {
  const found = resolve(schema, root);
  if (depth > 4) return "…";
  const inside = (one: JsonSchema) => typeWords(one, root, depth + 1);
  switch (kindOf(found)) {
    case "choice":
      return either(choices(found).slice(0, 8).map((one) => JSON.stringify(one)).concat(choices(found).length > 8 ? ["…"] : []));
    case "union":
      return either([...new Set(variants(found)!.map(inside))]);
    case "list":
      return `list of ${inside(found.items as JsonSchema)}`;
    case "tuple":
      return `list of ${found.prefixItems!.map(inside).join(", ")}`;
    case "map":
      return `object of ${inside(found.additionalProperties as JsonSchema)}`;
    case "object":
      return found.title ?? "object";
    case "text":
      return found.contentEncoding === "base64" ? "bytes in base64" : (formats[found.format ?? ""] ?? found.format ?? "text");
    case "json":
      return found.type === "array" ? "list" : found.type === "object" ? "object" : "anything";
    default:
      return String(found.type);
  }
}

function either(words: string[]): string {
  return words.length < 2 ? (words[0] ?? "anything") : `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`;
}

/** 1 to 99, at least 3 characters, matches ^\d+$ */
export function limits(schema: JsonSchema): string[] {
  const found: string[] = [];
  const range = (low: number | undefined, high: number | undefined, unit: string) => {
    if (low !== undefined && high !== undefined) found.push(low === high ? `exactly ${low}${unit}` : `${low} to ${high}${unit}`);
    else if (low !== undefined && (low !== 0 || !unit)) found.push(low === 1 && unit ? "not empty" : `at least ${low}${unit}`);
    else if (high !== undefined) found.push(`at most ${high}${unit}`);
  };
  range(schema.minimum, schema.maximum, "");
  if (schema.exclusiveMinimum !== undefined) found.push(`more than ${schema.exclusiveMinimum}`);
  if (schema.exclusiveMaximum !== undefined) found.push(`less than ${schema.exclusiveMaximum}`);
  if (schema.multipleOf !== undefined) found.push(`a multiple of ${schema.multipleOf}`);
  range(schema.minLength, schema.maxLength, " characters");
  if (schema.pattern !== undefined) found.push(`matches ${schema.pattern}`);
  if (!schema.prefixItems) range(schema.minItems, schema.maxItems, " items");
  if (schema.uniqueItems) found.push("no item twice");
  range(schema.minProperties, schema.maxProperties, " members");
  return found;
}
