/**
 * What travels, as types. Made by `npm run types` from docs/reference/openapi.json; not for editing by hand.
 */
export interface components {
    schemas: {
        /**
         * AttemptShape
         * @description One attempt that did not complete.
         */
        readonly AttemptShape: {
            readonly attempt: number;
            readonly worker: string | null;
            readonly started_at: string | null;
            /** Format: date-time */
            readonly ended_at: string;
            readonly error: components["schemas"]["ErrorShape"];
        };
        /**
         * BatchShape
         * @description Up to how many jobs one call of its handler takes, and how many seconds it waits for more.
         */
        readonly BatchShape: {
            readonly size: number;
            readonly wait: number;
        };
        /**
         * BriefError
         * @description Why an attempt errored or a job ended; the rest of it is with the job's attempts.
         */
        readonly BriefError: {
            readonly code: string;
            readonly message: string;
        };
        /**
         * BriefProgress
         * @description How far a handler says it is.
         */
        readonly BriefProgress: {
            readonly percent: number;
            readonly message?: string;
            readonly stage?: string;
        };
        /**
         * Cancel
         * @description Ended on request.
         */
        readonly Cancel: {
            /** @enum {unknown} */
            readonly outcome: "cancel";
            /** Format: uuid */
            readonly id: string;
            readonly fence: number;
            /** @default null */
            readonly run_seconds?: number | null;
            /** @default null */
            readonly error?: components["schemas"]["ErrorBody"] | null;
        };
        /**
         * Cancellations
         * @description Whether somebody wants each of these jobs to stop.
         */
        readonly Cancellations: {
            readonly cancel_requested: readonly boolean[];
        };
        /**
         * Changed
         * @description What became of it. ``requested``: its worker has been asked to stop.
         */
        readonly Changed: {
            /** Format: uuid */
            readonly id: string;
            readonly action: string;
            /** @default false */
            readonly requested?: boolean;
        };
        /**
         * Complete
         * @description The handler returned. A result that cannot be kept fails the job instead, and the answer says so.
         */
        readonly Complete: {
            /** @enum {unknown} */
            readonly outcome: "complete";
            /** Format: uuid */
            readonly id: string;
            readonly fence: number;
            /** @default null */
            readonly run_seconds?: number | null;
            /** @default null */
            readonly result?: unknown;
        };
        /**
         * DependentsShape
         * @description The first of the jobs that run after one, and how many there are.
         */
        readonly DependentsShape: {
            readonly items: readonly components["schemas"]["RelativeShape"][];
            readonly total: number;
            readonly total_exact: boolean;
        };
        /**
         * DistributionShape
         * @description A duration in seconds, summed up; null where nothing was measured.
         */
        readonly DistributionShape: {
            readonly count: number;
            readonly average: number | null;
            readonly p50: number | null;
            readonly p95: number | null;
            readonly p99: number | null;
        };
        /**
         * EnqueueBody
         * @description A job to make, for a task or for whoever takes jobs of a topic.
         *
         *     ``runAt``, ``maxRetries``, ``max_retries`` (attempts after the first), ``maxAttempts``,
         *     ``correlationId``, ``onDuplicate`` and ``afterAny`` are other names, for programs that use them.
         *     ``after``: jobs that must have completed before; with ``after_any`` they may end in any way.
         *     ``headers``: texts that travel with the job, for programs that pass on jobs of others; for superusers, but
         *     for ``traceparent`` and ``tracestate``.
         *     ``tenant``, ``user_id``, ``service_id``: for whom the job is, which superusers may choose; everybody
         *     else's jobs are for whom the key or the token is, and another one is refused.
         *     ``ttr``: seconds that a reservation of the job lasts, in place of the lease that its worker asks for.
         */
        readonly EnqueueBody: {
            readonly topic?: string;
            readonly task?: string;
            /** @default null */
            readonly payload?: unknown;
            /**
             * @default json
             * @enum {unknown}
             */
            readonly format?: "bytes" | "json";
            readonly priority?: number;
            readonly max_attempts?: number | null;
            readonly key?: string | null;
            /** @enum {unknown} */
            readonly until?: "finished" | "pruned";
            /** @enum {unknown} */
            readonly on_duplicate?: "keep" | "replace";
            readonly correlation_id?: string | null;
            readonly timeout?: number | null;
            readonly retry?: (components["schemas"]["ExponentialRetry"] | components["schemas"]["QuadraticRetry"] | components["schemas"]["FixedRetry"] | components["schemas"]["SequenceRetry"]) | null;
            readonly expires?: number | null;
            readonly limit_key?: string | null;
            readonly run_at?: string | null;
            readonly delay?: number | null;
            readonly after?: readonly string[] | null;
            readonly after_any?: boolean;
            readonly retention?: number | null;
            readonly retention_failed?: number | null;
            readonly headers?: {
                readonly [key: string]: string;
            };
            readonly tenant?: string;
            readonly user_id?: string;
            readonly service_id?: string;
            readonly ttr?: number | null;
            readonly runAt?: string | null;
            readonly maxRetries?: number;
            readonly max_retries?: number;
            readonly maxAttempts?: number | null;
            readonly correlationId?: string | null;
            /** @enum {unknown} */
            readonly onDuplicate?: "keep" | "replace";
            readonly afterAny?: boolean;
        };
        /**
         * EnqueueManyBody
         * @description Jobs to make, all of them or none.
         */
        readonly EnqueueManyBody: {
            readonly jobs: readonly components["schemas"]["EnqueueBody"][];
        };
        /**
         * EnqueuedJob
         * @description The job that was made, or the one that holds the key.
         */
        readonly EnqueuedJob: {
            /** Format: uuid */
            readonly id: string;
            readonly topic: string;
            readonly task: string;
            /** @enum {string} */
            readonly state: "pending" | "running" | "completed" | "failed" | "cancelled";
            /** @enum {string} */
            readonly status: "pending" | "running" | "completed" | "failed" | "cancelled";
            /** Format: date-time */
            readonly run_at: string;
            /** Format: date-time */
            readonly created: string;
            /** Format: date-time */
            readonly created_at: string;
            readonly duplicate: boolean;
            readonly replaced: boolean;
        };
        /**
         * EnqueuedJobs
         * @description The jobs that were made, in the order they were given.
         */
        readonly EnqueuedJobs: {
            readonly items: readonly components["schemas"]["EnqueuedJob"][];
        };
        /**
         * EntryShape
         * @description Something that happened to a job. ``id`` is the same whenever it is told.
         */
        readonly EntryShape: {
            readonly id: string;
            readonly what: components["schemas"]["Happening"];
            /** Format: date-time */
            readonly at?: string;
            /** Format: date-time */
            readonly until?: string;
            readonly attempt?: number;
            readonly worker?: string;
            readonly seconds?: number;
            readonly error?: components["schemas"]["BriefError"];
            readonly step?: string;
            readonly progress?: components["schemas"]["BriefProgress"];
        };
        /**
         * ErrorBody
         * @description Why an attempt errored: a code for programs, a message for people. What is too long is cut.
         */
        readonly ErrorBody: {
            readonly code: string;
            readonly message: string;
            /** @default true */
            readonly retryable?: boolean;
            /** @default null */
            readonly details?: Record<string, unknown> | null;
            /** @default null */
            readonly traceback?: string | null;
        };
        /**
         * ErrorShape
         * @description Why an attempt errored. The traceback needs the scope ``tracebacks``, or a superuser.
         */
        readonly ErrorShape: {
            readonly code: string;
            readonly message: string;
            readonly retryable: boolean;
            /** @default null */
            readonly details?: unknown;
            /** @default null */
            readonly traceback?: string | null;
        };
        readonly EventsQuery: {
            /** @description Only these topics, with commas between them */
            readonly topic?: string;
            /** @description The ids of up to 20 jobs, with commas between them: everything that happens to them instead of the counts of topics, until all have finished */
            readonly job?: string;
            readonly tenant?: string;
            /** @description As the header Last-Event-ID, for clients that cannot set one */
            readonly last_event_id?: string;
        };
        /**
         * ExponentialRetry
         * @description Wait ``initial`` seconds, then ``factor`` times longer each time.
         */
        readonly ExponentialRetry: {
            /** @enum {unknown} */
            readonly kind: "exponential";
            /**
             * @description Seconds.
             * @default 1
             */
            readonly initial?: number;
            /** @default 2 */
            readonly factor?: number;
            /**
             * @description Seconds.
             * @default 30
             */
            readonly maximum?: number;
            /** @default true */
            readonly jitter?: boolean;
        };
        /**
         * ExtendBody
         * @description Leases, and how long each is to last from now: as long as the server's ``lease`` unless told.
         */
        readonly ExtendBody: {
            readonly leases: readonly components["schemas"]["LeaseBody"][];
            /** @default null */
            readonly lease?: number | null;
        };
        /**
         * Extended
         * @description The same, and whether somebody wants the job to stop.
         */
        readonly Extended: {
            readonly held: readonly boolean[];
            readonly cancel_requested: readonly boolean[];
        };
        /**
         * Fail
         * @description The attempt errored, and trying again would not help.
         */
        readonly Fail: {
            /** @enum {unknown} */
            readonly outcome: "fail";
            /** Format: uuid */
            readonly id: string;
            readonly fence: number;
            /** @default null */
            readonly run_seconds?: number | null;
            readonly error: components["schemas"]["ErrorBody"];
        };
        /**
         * FinishedStep
         * @description A step that need not run again.
         */
        readonly FinishedStep: {
            readonly name: string;
            readonly output: unknown;
            readonly attempt: number;
            readonly worker: string | null;
            /** Format: date-time */
            readonly started_at: string;
            /** Format: date-time */
            readonly finished_at: string;
        };
        /**
         * FixedRetry
         * @description Wait the same every time.
         */
        readonly FixedRetry: {
            /** @enum {unknown} */
            readonly kind: "fixed";
            /** @description Seconds. */
            readonly delay: number;
            /** @default true */
            readonly jitter?: boolean;
        };
        readonly GetResultQuery: {
            /**
             * @description Seconds to wait for the job to finish.
             * @default 0
             */
            readonly wait?: number;
        };
        /**
         * Happening
         * @description What an entry tells.
         * @enum {unknown}
         */
        readonly Happening: "blocked" | "cancel_requested" | "cancelled" | "claimed" | "completed" | "delayed" | "enqueued" | "errored" | "failed" | "progress" | "requeued" | "retrying" | "started" | "step";
        /**
         * Held
         * @description Whether each lease is held, in the order they were given. Where one is not, nothing was changed.
         */
        readonly Held: {
            readonly held: readonly boolean[];
        };
        /**
         * InvalidPart
         * @description One thing that is wrong with the input, and where: in the body or in the query.
         */
        readonly InvalidPart: {
            readonly detail: string;
            readonly pointer?: string;
            readonly parameter?: string;
        };
        /**
         * InvalidResult
         * @description A result that could not be kept: what was told to be complete has failed (``invalid_result``).
         */
        readonly InvalidResult: {
            /** @description Of the settlement, counted from 0. */
            readonly index: number;
            readonly message: string;
        };
        /**
         * JobDetail
         * @description A job with its errors and steps; bodies are for those who manage jobs, and redacted.
         *
         *     ``schedule`` made it, if one did, for the moment ``scheduled_for``.
         */
        readonly JobDetail: {
            /** Format: uuid */
            readonly id: string;
            readonly topic: string;
            readonly task: string;
            readonly tenant: string;
            /** @enum {string} */
            readonly state: "pending" | "running" | "completed" | "failed" | "cancelled";
            /** @enum {string} */
            readonly status: "pending" | "running" | "completed" | "failed" | "cancelled";
            /** @enum {string} */
            readonly shown_state: "pending" | "running" | "completed" | "failed" | "cancelled" | "delayed" | "retrying" | "blocked" | "claimed";
            readonly priority: number;
            readonly attempt: number;
            readonly max_attempts: number | null;
            readonly retries: number;
            readonly max_retries: number | null;
            readonly timeout: number | null;
            readonly key: string | null;
            readonly correlation_id: string | null;
            readonly user_id: string | null;
            readonly service_id: string | null;
            readonly limit_key: string | null;
            readonly worker: string | null;
            readonly cancel_requested: boolean;
            /** Format: date-time */
            readonly created: string;
            /** Format: date-time */
            readonly created_at: string;
            /** Format: date-time */
            readonly updated: string;
            /** Format: date-time */
            readonly run_at: string;
            readonly claimed_at: string | null;
            readonly started_at: string | null;
            readonly finished_at: string | null;
            readonly locked_until: string | null;
            readonly progress: components["schemas"]["ProgressShape"] | null;
            readonly last_error: string | null;
            /** @enum {unknown} */
            readonly format: "bytes" | "json";
            readonly error: components["schemas"]["ErrorShape"] | null;
            readonly attempts: readonly components["schemas"]["AttemptShape"][];
            readonly steps: readonly components["schemas"]["StepShape"][];
            readonly timeline: readonly components["schemas"]["EntryShape"][];
            readonly after: readonly components["schemas"]["RelativeShape"][];
            readonly after_any: boolean;
            readonly dependents: components["schemas"]["DependentsShape"];
            readonly schedule: string | null;
            readonly scheduled_for: string | null;
            readonly payload?: unknown;
            readonly result?: unknown;
            readonly checkpoint?: unknown;
        };
        /**
         * JobList
         * @description Some jobs, newest first. ``cursor`` is where the next page begins; null means there is none.
         */
        readonly JobList: {
            readonly items: readonly components["schemas"]["JobSummary"][];
            readonly total: number;
            readonly total_exact: boolean;
            readonly limit: number;
            readonly offset: number;
            readonly cursor: string | null;
            readonly partial: boolean;
            readonly searched_back_to: string | null;
        };
        /**
         * JobResult
         * @description What came of a job: ``result`` when it completed, ``error`` when it did not.
         */
        readonly JobResult: {
            /** Format: uuid */
            readonly id: string;
            /** @enum {string} */
            readonly state: "pending" | "running" | "completed" | "failed" | "cancelled";
            /** @enum {string} */
            readonly status: "pending" | "running" | "completed" | "failed" | "cancelled";
            readonly finished: boolean;
            readonly finished_at: string | null;
            readonly result?: unknown;
            /** @default null */
            readonly error?: components["schemas"]["ErrorShape"] | null;
        };
        /**
         * JobSummary
         * @description What a list tells of a job.
         */
        readonly JobSummary: {
            /** Format: uuid */
            readonly id: string;
            readonly topic: string;
            readonly task: string;
            readonly tenant: string;
            /** @enum {string} */
            readonly state: "pending" | "running" | "completed" | "failed" | "cancelled";
            /** @enum {string} */
            readonly status: "pending" | "running" | "completed" | "failed" | "cancelled";
            /** @enum {string} */
            readonly shown_state: "pending" | "running" | "completed" | "failed" | "cancelled" | "delayed" | "retrying" | "blocked" | "claimed";
            readonly priority: number;
            readonly attempt: number;
            readonly max_attempts: number | null;
            readonly retries: number;
            readonly max_retries: number | null;
            readonly timeout: number | null;
            readonly key: string | null;
            readonly correlation_id: string | null;
            readonly user_id: string | null;
            readonly service_id: string | null;
            readonly limit_key: string | null;
            readonly worker: string | null;
            readonly cancel_requested: boolean;
            /** Format: date-time */
            readonly created: string;
            /** Format: date-time */
            readonly created_at: string;
            /** Format: date-time */
            readonly updated: string;
            /** Format: date-time */
            readonly run_at: string;
            readonly claimed_at: string | null;
            readonly started_at: string | null;
            readonly finished_at: string | null;
            readonly locked_until: string | null;
            readonly progress: components["schemas"]["ProgressShape"] | null;
            readonly last_error: string | null;
        };
        /**
         * KickBody
         * @description How many failed jobs, newest first.
         */
        readonly KickBody: {
            /** @default 1000 */
            readonly count?: number;
        };
        /**
         * Kicked
         * @description How many jobs will run again.
         */
        readonly Kicked: {
            readonly topic: string;
            readonly kicked: number;
        };
        /**
         * LaneBody
         * @description Jobs of one task in one topic. Without a task: of all; with an empty one: of those without any.
         */
        readonly LaneBody: {
            readonly topic: string;
            /** @default null */
            readonly task?: string | null;
        };
        /**
         * LeaseBody
         * @description The right to end one job, as ``reserve`` gave it.
         */
        readonly LeaseBody: {
            /** Format: uuid */
            readonly id: string;
            readonly fence: number;
        };
        /**
         * LeasesBody
         * @description Some leases.
         */
        readonly LeasesBody: {
            readonly leases: readonly components["schemas"]["LeaseBody"][];
        };
        /**
         * LeaveBody
         * @description Who leaves.
         */
        readonly LeaveBody: {
            readonly name: string;
            /** Format: date-time */
            readonly started_at: string;
        };
        readonly ListJobsQuery: {
            readonly where?: string;
            readonly topic?: string;
            readonly task?: string;
            readonly handler_id?: string;
            readonly state?: string;
            readonly status?: string;
            readonly tenant?: string;
            readonly key?: string;
            readonly correlation_id?: string;
            /** Format: date-time */
            readonly created_after?: string;
            /** Format: date-time */
            readonly created_before?: string;
            readonly text?: string;
            /**
             * @description At most 200 are given.
             * @default 50
             */
            readonly limit?: number;
            /** @default 0 */
            readonly offset?: number;
            readonly cursor?: string;
        };
        readonly ListTopicsQuery: {
            /**
             * @description Seconds that rates are about.
             * @default 3600
             */
            readonly window?: number;
            readonly tenant?: string;
            /** @default 200 */
            readonly limit?: number;
            /** @default 0 */
            readonly offset?: number;
        };
        /**
         * MinuteShape
         * @description What happened in the minute that begins then.
         */
        readonly MinuteShape: {
            /** Format: date-time */
            readonly minute: string;
            readonly enqueued: number;
            readonly completed: number;
            readonly failed: number;
            readonly cancelled: number;
            readonly retried: number;
        };
        /**
         * PauseBody
         * @description For how long; without an end when it does not say.
         */
        readonly PauseBody: {
            /** @default null */
            readonly seconds?: number | null;
        };
        /**
         * ProblemDocument
         * @description An error as RFC 9457 has it.
         */
        readonly ProblemDocument: {
            readonly type: string;
            readonly title: string;
            readonly status: number;
            readonly detail: string;
            readonly code: string;
            readonly instance?: string;
            /** @default [] */
            readonly errors?: readonly components["schemas"]["InvalidPart"][];
            readonly position?: number;
            readonly length?: number;
            readonly incident?: string;
        };
        /**
         * ProgressBody
         * @description Progress of a job: a percentage, clamped to 0 to 100, and texts, cut to 1,000 characters.
         */
        readonly ProgressBody: {
            readonly percent: number;
            /** @default null */
            readonly message?: string | null;
            /** @default null */
            readonly stage?: string | null;
        };
        /**
         * ProgressShape
         * @description How far a running job says it is.
         */
        readonly ProgressShape: {
            readonly percent: number;
            readonly message: string | null;
            readonly stage: string | null;
        };
        /**
         * QuadraticRetry
         * @description Wait n² times ``unit`` seconds after attempt n.
         */
        readonly QuadraticRetry: {
            /** @enum {unknown} */
            readonly kind: "quadratic";
            /**
             * @description Seconds.
             * @default 60
             */
            readonly unit?: number;
            /**
             * @description Seconds.
             * @default 86400
             */
            readonly maximum?: number;
            /** @default true */
            readonly jitter?: boolean;
        };
        /**
         * RelativeShape
         * @description A job that another one runs after, or the other way round. ``state`` is null when it was deleted.
         */
        readonly RelativeShape: {
            /** Format: uuid */
            readonly id: string;
            readonly state: ("pending" | "running" | "completed" | "failed" | "cancelled") | null;
            readonly waits: boolean;
        };
        /**
         * Release
         * @description Given back, not counted as an attempt. ``counted``: among the job's releases; ``taken``: not when
         *     nobody has seen it.
         */
        readonly Release: {
            /** @enum {unknown} */
            readonly outcome: "release";
            /** Format: uuid */
            readonly id: string;
            readonly fence: number;
            /** @default null */
            readonly run_seconds?: number | null;
            /**
             * @description Seconds.
             * @default 0
             */
            readonly delay?: number;
            /** @default null */
            readonly priority?: number | null;
            /** @default true */
            readonly counted?: boolean;
            /** @default true */
            readonly taken?: boolean;
        };
        /**
         * ReportBody
         * @description What to remember of one job. A report says that the job has begun, ``run_seconds`` ago.
         */
        readonly ReportBody: {
            /** Format: uuid */
            readonly id: string;
            readonly fence: number;
            /**
             * @description Seconds the handler ran.
             * @default 0
             */
            readonly run_seconds?: number;
            /** @default null */
            readonly progress?: components["schemas"]["ProgressBody"] | null;
            readonly checkpoint?: unknown;
            /** @default null */
            readonly step?: components["schemas"]["StepBody"] | null;
        };
        /**
         * ReportsBody
         * @description What to remember of some jobs.
         */
        readonly ReportsBody: {
            readonly reports: readonly components["schemas"]["ReportBody"][];
        };
        /**
         * Reservation
         * @description Jobs, the best first; none when none was due in time. ``next_due_in``: seconds until one is, where that
         *     is known. ``repeated``: the answer of an earlier request with this id, its leases made to last again.
         */
        readonly Reservation: {
            readonly jobs: readonly components["schemas"]["ReservedJob"][];
            readonly next_due_in: number | null;
            readonly kept_back: boolean;
            readonly repeated: boolean;
        };
        /**
         * ReserveBody
         * @description What a worker wants. ``free``: how many of ``limit`` could start at once, which matters for topics with
         *     strict limits. ``reports_starts``: the worker calls ``start`` for the jobs that it starts, and the others
         *     never lose an attempt with it. Without it the only job of an answer counts as started.
         */
        readonly ReserveBody: {
            /** @default null */
            readonly topics?: readonly string[] | null;
            /** @default null */
            readonly lanes?: readonly components["schemas"]["LaneBody"][] | null;
            /** @default 1 */
            readonly limit?: number;
            /** @default null */
            readonly lease?: number | null;
            /** @default null */
            readonly worker?: string | null;
            /** @default null */
            readonly free?: number | null;
            /** @default false */
            readonly reports_starts?: boolean;
            /** @default {} */
            readonly topic_limits?: {
                readonly [key: string]: number;
            };
        };
        readonly ReserveJobsQuery: {
            /**
             * @description Seconds to wait for a job.
             * @default 0
             */
            readonly wait?: number;
        };
        /**
         * ReservedJob
         * @description A job in the hands of a worker. ``id`` and ``fence`` are its lease, of which ``lease_left`` seconds
         *     were left when this was answered. ``checkpoint`` is there when an earlier attempt left one. ``losses``:
         *     how many workers were lost with this job; above 0 it may have killed them, and is granted alone.
         */
        readonly ReservedJob: {
            /** Format: uuid */
            readonly id: string;
            readonly fence: number;
            readonly topic: string;
            readonly task: string;
            readonly tenant: string;
            readonly priority: number;
            readonly attempt: number;
            readonly max_attempts: number | null;
            readonly timeout: number | null;
            readonly retry: Record<string, unknown> | null;
            readonly lease_seconds: number;
            readonly lease_left: number;
            readonly payload: unknown;
            /** @enum {unknown} */
            readonly format: "bytes" | "json";
            readonly checkpoint?: unknown;
            readonly number: number;
            /** Format: date-time */
            readonly created_at: string;
            /** Format: date-time */
            readonly run_at: string;
            readonly key: string | null;
            readonly correlation_id: string | null;
            readonly user_id: string | null;
            readonly service_id: string | null;
            readonly headers: {
                readonly [key: string]: string;
            };
            readonly losses: number;
        };
        /**
         * RetryLater
         * @description The attempt errored. Without a delay the job's retry policy decides; after the last attempt, or when
         *     the error is not retryable, the job fails.
         */
        readonly RetryLater: {
            /** @enum {unknown} */
            readonly outcome: "retry";
            /** Format: uuid */
            readonly id: string;
            readonly fence: number;
            /** @default null */
            readonly run_seconds?: number | null;
            readonly error: components["schemas"]["ErrorBody"];
            /** @default null */
            readonly delay?: number | null;
        };
        /**
         * SequenceRetry
         * @description Wait these times in turn; the last one repeats.
         */
        readonly SequenceRetry: {
            /** @enum {unknown} */
            readonly kind: "sequence";
            readonly delays: readonly number[];
            /** @default true */
            readonly jitter?: boolean;
        };
        /**
         * SettleBody
         * @description How some attempts ended.
         */
        readonly SettleBody: {
            readonly settlements: readonly (components["schemas"]["Complete"] | components["schemas"]["RetryLater"] | components["schemas"]["Fail"] | components["schemas"]["Release"] | components["schemas"]["Cancel"])[];
        };
        /**
         * Settled
         * @description Whether each was accepted, in the order they were given. False: the lease is not held any more, and
         *     that job was left alone. ``invalid_results``: what was accepted of jobs that failed all the same.
         */
        readonly Settled: {
            readonly accepted: readonly boolean[];
            readonly invalid_results: readonly components["schemas"]["InvalidResult"][];
        };
        /**
         * StartBody
         * @description Leases whose handlers have begun, and how long ago each did: now unless told. ``alone``: nothing else
         *     runs in the worker, so its death counts as an attempt. In company it never does, because any of the jobs
         *     may have caused it.
         */
        readonly StartBody: {
            readonly leases: readonly components["schemas"]["LeaseBody"][];
            /** @default [] */
            readonly run_seconds?: readonly number[];
            /** @default true */
            readonly alone?: boolean;
        };
        readonly StatsQuery: {
            /**
             * @description Seconds that times and series are about.
             * @default 3600
             */
            readonly window?: number;
            readonly tenant?: string;
        };
        /**
         * StatsShape
         * @description The queue as it is now; times and series are over the last ``window_seconds``.
         */
        readonly StatsShape: {
            readonly pending: number;
            readonly running: number;
            readonly processing: number;
            readonly completed: number;
            readonly failed: number;
            readonly cancelled: number;
            readonly delayed: number;
            readonly success_rate: number | null;
            readonly avg_execution_time: number | null;
            readonly oldest_due_at: string | null;
            readonly window_seconds: number;
            readonly run_time: components["schemas"]["DistributionShape"];
            readonly wait_time: components["schemas"]["DistributionShape"];
            readonly topics: readonly components["schemas"]["TopicShape"][];
            readonly more_topics: number;
            readonly series: readonly components["schemas"]["MinuteShape"][];
        };
        /**
         * StepBody
         * @description A step that is finished. Of two with one name the first stands.
         */
        readonly StepBody: {
            readonly name: string;
            readonly output: unknown;
            /**
             * @description Seconds the handler ran.
             * @default 0
             */
            readonly run_seconds?: number;
        };
        /**
         * StepShape
         * @description One finished step; its output is for those who manage jobs.
         */
        readonly StepShape: {
            readonly name: string;
            readonly attempt: number;
            readonly worker: string | null;
            /** Format: date-time */
            readonly started_at: string;
            /** Format: date-time */
            readonly finished_at: string;
            readonly seconds: number;
            readonly output?: unknown;
        };
        /**
         * Steps
         * @description The finished steps of a job, in their order; none when its lease is not held any more.
         */
        readonly Steps: {
            readonly held: boolean;
            readonly steps: readonly components["schemas"]["FinishedStep"][];
        };
        /**
         * TaskList
         * @description The tasks by name; what a process of the app's has registered is what there is.
         */
        readonly TaskList: {
            readonly items: readonly components["schemas"]["TaskShape"][];
            readonly total: number;
        };
        /**
         * TaskShape
         * @description A task, what its jobs get when nothing else is said, and what its payload looks like.
         *
         *     ``result_schema`` is that of what it is annotated to return; null where that is nothing or not known.
         */
        readonly TaskShape: {
            readonly name: string;
            readonly topic: string;
            readonly aliases: readonly string[];
            readonly description: string | null;
            readonly durable: boolean;
            readonly max_attempts: number | null;
            readonly timeout: number | null;
            readonly priority: number;
            readonly isolation: string | null;
            readonly batch: components["schemas"]["BatchShape"] | null;
            readonly payload_schema: Record<string, unknown> | null;
            readonly result_schema: Record<string, unknown> | null;
        };
        /**
         * Time
         * @description What time it is, by the clock that decides when jobs are due, and how large a request may be.
         */
        readonly Time: {
            /** Format: date-time */
            readonly now: string;
            readonly max_request_bytes: number;
        };
        /** TopicChanged */
        readonly TopicChanged: {
            readonly topic: string;
            readonly action: string;
        };
        /**
         * TopicDetail
         * @description A topic with what of its pending jobs is due, and what happened in the window.
         *
         *     ``due`` and ``delayed`` are null beyond the 1,000 lanes that are counted; what happened is null there, and
         *     when a tenant asks: minutes are kept of all tenants together. ``delayed`` has jobs that wait for others,
         *     too.
         */
        readonly TopicDetail: {
            readonly topic: string;
            readonly pending: number;
            readonly running: number;
            readonly processing: number;
            readonly completed: number;
            readonly failed: number;
            readonly cancelled: number;
            readonly paused: boolean;
            readonly paused_until: string | null;
            readonly due: number | null;
            readonly delayed: number | null;
            readonly enqueued_in_window: number | null;
            readonly completed_in_window: number | null;
            readonly failed_in_window: number | null;
            readonly cancelled_in_window: number | null;
            readonly retried_in_window: number | null;
            readonly average_run_seconds: number | null;
            readonly average_wait_seconds: number | null;
        };
        /**
         * TopicList
         * @description Topics by name.
         */
        readonly TopicList: {
            readonly items: readonly components["schemas"]["TopicDetail"][];
            readonly total: number;
            readonly window_seconds: number;
            readonly limit: number;
            readonly offset: number;
        };
        /**
         * TopicShape
         * @description One topic's counts. A pause without an end has ``paused`` and no ``paused_until``.
         */
        readonly TopicShape: {
            readonly topic: string;
            readonly pending: number;
            readonly running: number;
            readonly processing: number;
            readonly completed: number;
            readonly failed: number;
            readonly cancelled: number;
            readonly paused: boolean;
            readonly paused_until: string | null;
        };
        /**
         * WorkerBody
         * @description What a worker tells about itself, every five seconds; who tells nothing for twenty is missing.
         *
         *     ``started_at`` by the server's clock (``GET /api/jobs/time``): with the name it tells a worker from its
         *     predecessor.
         */
        readonly WorkerBody: {
            readonly name: string;
            /** Format: date-time */
            readonly started_at: string;
            /** @default  */
            readonly host?: string;
            /** @default 0 */
            readonly pid?: number;
            /** @default  */
            readonly version?: string;
            /** @default [] */
            readonly lanes?: readonly components["schemas"]["LaneBody"][];
            /** @default 0 */
            readonly more_lanes?: number;
            /** @default 0 */
            readonly concurrency?: number;
            /** @default 0 */
            readonly running?: number;
            /** @default 0 */
            readonly claimed?: number;
            /** @default 0 */
            readonly stuck?: number;
            /** @default 0 */
            readonly loop_lag_seconds?: number;
            /** @default false */
            readonly polling?: boolean;
            /** @default 0 */
            readonly ran?: number;
            /** @default 0 */
            readonly completed?: number;
            /** @default 0 */
            readonly failed?: number;
            /** @default 0 */
            readonly lost?: number;
        };
        /**
         * WorkerList
         * @description The workers by name, at most 1,000.
         */
        readonly WorkerList: {
            readonly items: readonly components["schemas"]["WorkerShape"][];
            readonly total: number;
        };
        /**
         * WorkerShape
         * @description One worker. ``missing``: not heard of for a while; ``degraded``: some of its slots are stuck;
         *     ``polling``: no wake-ups come through to it.
         */
        readonly WorkerShape: {
            readonly name: string;
            readonly host: string;
            readonly pid: number;
            readonly version: string;
            /** Format: date-time */
            readonly started_at: string;
            /** Format: date-time */
            readonly seen_at: string;
            readonly seconds_since_seen: number;
            readonly missing: boolean;
            readonly degraded: boolean;
            readonly topics: readonly string[];
            readonly tasks: readonly string[];
            readonly more_lanes: number;
            readonly concurrency: number;
            readonly running: number;
            readonly claimed: number;
            readonly stuck: number;
            readonly loop_lag_seconds: number;
            readonly polling: boolean;
            readonly ran: number;
            readonly completed: number;
            readonly failed: number;
            readonly lost: number;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
