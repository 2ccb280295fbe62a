/** Names for what travels. The fields are those of the HTTP API, as its reference has them; durations are seconds. */
import type { components } from "./schema.js";

type Schemas = components["schemas"];

/** A job as a list tells of it. */
export type JobSummary = Schemas["JobSummary"];
/** A job with its errors, steps and timeline; with its bodies for those who manage jobs. */
export type Job = Schemas["JobDetail"];
export type JobState = Schemas["JobSummary"]["state"];
/** Why an attempt errored. */
export type JobError = Schemas["ErrorShape"];
/** Some jobs, newest first; `cursor` leads to the next page. */
export type JobPage = Schemas["JobList"];
export type JobFilter = Omit<Schemas["ListJobsQuery"], "handler_id" | "status" | "limit" | "offset" | "cursor">;
export type JobQuery = Omit<Schemas["ListJobsQuery"], "handler_id" | "status">;
/** Something that happened to a job. */
export type TimelineEntry = Schemas["EntryShape"];
/** What became of a job that was requeued, cancelled or deleted. */
export type Changed = Schemas["Changed"];
export type JobOutcome = Schemas["JobResult"];
export type Statistics = Schemas["StatsShape"];
export type StatisticsQuery = Schemas["StatsQuery"];
export type TopicList = Schemas["TopicList"];
export type TopicQuery = Schemas["ListTopicsQuery"];
export type TopicChanged = Schemas["TopicChanged"];
export type Kicked = Schemas["Kicked"];
export type TaskInformation = Schemas["TaskShape"];
export type WorkerInformation = Schemas["WorkerShape"];
/** A problem document, as RFC 9457 has it. */
export type Problem = Schemas["ProblemDocument"];
export type ProblemPart = Schemas["InvalidPart"];

/** The job that was made, or the one that holds the key. */
export type EnqueuedJob = Schemas["EnqueuedJob"];

type EnqueueBody = Schemas["EnqueueBody"];
type OtherNames = "runAt" | "maxRetries" | "max_retries" | "maxAttempts" | "correlationId" | "onDuplicate" | "afterAny";

/** What can be said about a job besides its task and its payload. */
export interface EnqueueOptions extends Omit<EnqueueBody, "task" | "payload" | "run_at" | OtherNames> {
  /** When it is due: a time with a zone. */
  run_at?: string | Date;
}
