/**
 * Writes src/schema.ts: the types of what the client sends and gets, from the OpenAPI document of the server.
 *
 *     npm run types              after a route changed
 *     npm run types -- --check   says whether that was forgotten
 *
 * Only what the client uses is taken, so that a route of somebody else's changes nothing here.
 */
import { readFile, writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";

const DOCUMENT = new URL("../../../docs/reference/openapi.json", import.meta.url);
const WRITTEN = new URL("../src/schema.ts", import.meta.url);
const REFERENCE = "#/components/schemas/";

/** The routes the client asks, by their operationId. */
const OPERATIONS = [
  "enqueue",
  "enqueue_many",
  "get_job",
  "get_result",
  "list_jobs",
  "requeue_job",
  "cancel_job",
  "delete_job",
  "stats",
  "events",
  "list_topics",
  "pause_topic",
  "resume_topic",
  "kick_topic",
  "list_tasks",
  "list_workers",
  "time",
  "reserve_jobs",
  "start_jobs",
  "extend_leases",
  "cancel_requests",
  "settle_jobs",
  "report_progress",
  "finished_steps",
  "worker_beat",
  "worker_leave",
];

const HEAD = `/**
 * What travels, as types. Made by \`npm run types\` from docs/reference/openapi.json; not for editing by hand.
 */
`;

/** The types of these routes, as a module of TypeScript. */
async function typesOf(whole) {
  const known = new Map(Object.values(whole.paths).flatMap(Object.values).map((one) => [one.operationId, one]));
  const schemas = {};
  const take = (value) => {
    if (typeof value !== "object" || value === null) return;
    const name = typeof value.$ref === "string" ? value.$ref.slice(REFERENCE.length) : undefined;
    if (name !== undefined && !(name in schemas)) {
      schemas[name] = whole.components.schemas[name];
      take(schemas[name]);
    }
    Object.values(value).forEach(take);
  };
  take({ $ref: `${REFERENCE}ProblemDocument` });
  for (const name of OPERATIONS) {
    const operation = known.get(name);
    if (operation === undefined) throw new Error(`docs/reference/openapi.json has no operation ${name}`);
    take(operation.requestBody?.content["application/json"].schema);
    for (const [status, answer] of Object.entries(operation.responses)) {
      if (status.startsWith("2")) take(answer.content?.["application/json"]?.schema);
    }
    const query = (operation.parameters ?? []).filter((parameter) => parameter.in === "query");
    if (query.length > 0) schemas[queryName(name)] = queryOf(query);
  }
  const sorted = Object.fromEntries(Object.entries(schemas).sort(([one], [other]) => (one < other ? -1 : 1)));
  const document = { openapi: whole.openapi, info: whole.info, paths: {}, components: { schemas: sorted } };
  // Fields with a default may be left out by whoever sends them.
  const written = astToString(await openapiTS(document, { defaultNonNullable: false, emptyObjectsUnknown: true, immutable: true, silent: true }));
  return HEAD + written.slice(written.indexOf("export interface components")).replace(/^export type (\$defs|operations) .*\n/gm, "");
}

/** list_jobs: ListJobsQuery */
function queryName(operation) {
  return operation.replace(/(?:^|_)(\w)/g, (_, letter) => letter.toUpperCase()) + "Query";
}

/** The parameters of a query as one object. */
function queryOf(parameters) {
  const described = ({ name, schema, description }) => [name, description === undefined ? schema : { ...schema, description }];
  return {
    type: "object",
    properties: Object.fromEntries(parameters.map(described)),
    required: parameters.filter((parameter) => parameter.required).map((parameter) => parameter.name),
  };
}

const text = await typesOf(JSON.parse(await readFile(DOCUMENT, "utf8")));
if (process.argv.includes("--check")) {
  if ((await readFile(WRITTEN, "utf8")) !== text) {
    console.error("src/schema.ts is out of date: run npm run types in sdk/js, and commit what changed");
    process.exitCode = 1;
  }
} else {
  await writeFile(WRITTEN, text);
}
