-- Tables. The functions that work on them follow in the other parts of this step. Columns mean what they mean on SQLite
-- (docs/decisions/0002-schema.md); docs/decisions/0016-postgresql-schema.md says why the tables differ.
-- Everything is made in the first schema of search_path, which schema.py sets.
-- Times are microseconds since 1970. Durations end in _us. State codes:
--   0 waiting (delayed or blocked)   1 ready   2 running   3 completed   4 failed   5 cancelled

-- A fence is 64 times a value of the sequence, plus the place in the batch for jobs that share a row (leased_batches).
-- No CACHE: values handed out in advance to another session would break first-in first-out, and a fence would
-- not grow from one claim of a job to the next.
CREATE SEQUENCE numbers;
CREATE SEQUENCE fences;

-- Jobs that are not finished. Small rows, few indexes: every claim writes a new version of its row.
CREATE TABLE jobs (
    id                  uuid     PRIMARY KEY,
    number              bigint   NOT NULL DEFAULT nextval('numbers'),
    priority            bigint   NOT NULL,
    run_at              bigint   NOT NULL,
    created_at          bigint   NOT NULL,
    fence               bigint   NOT NULL DEFAULT 0,
    leased_until        bigint,
    claimed_at          bigint,
    started_at          bigint,
    expires_at          bigint,
    timeout_us          bigint,
    lease_us            bigint,
    retention_us        bigint,
    retention_failed_us bigint,
    store_handle        bigint, -- the handle it was granted through: two workers may have one name
    attempt             integer  NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    max_attempts        integer,
    blocked             integer  NOT NULL DEFAULT 0,
    reserves            integer  NOT NULL DEFAULT 0,
    timeouts            integer, -- NULL = 0, here and below: what most jobs never need takes no room
    releases            integer,
    buries              integer,
    kicks               integer,
    touches             integer,
    state               smallint NOT NULL CHECK (state BETWEEN 0 AND 2),
    key_until           smallint,
    format              smallint NOT NULL CHECK (format IN (0, 1)), -- 0 json, 1 bytes
    suspect             boolean  NOT NULL DEFAULT false,
    counts_if_lost      boolean  NOT NULL DEFAULT false,
    cancel_requested    boolean  NOT NULL DEFAULT false,
    has_separate_body   boolean  NOT NULL DEFAULT false,
    has_dependents      boolean  NOT NULL DEFAULT false, -- there are jobs that run after it
    topic               text     NOT NULL,
    task                text     NOT NULL,
    tenant              text     NOT NULL,
    worker              text,
    retry               text,
    key                 text,
    correlation_id      text,
    user_id             text,
    service_id          text,
    limit_key           text,
    headers             text,
    error_summary       text,
    -- A small body travels with its row; a large one is in bodies. Text, not jsonb: it comes back as it was put in.
    payload             text,
    raw                 bytea,
    CHECK ((state = 2) = (leased_until IS NOT NULL))
) WITH (
    -- Room on the page for the small updates that touch no index (start, cancel request).
    fillfactor = 90,
    -- Dead rows are what slows a queue down: vacuum as soon as some gathered, at full speed, and never take
    -- the exclusive lock that giving pages back to the disk needs.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_analyze_scale_factor = 0.1,
    vacuum_truncate = off
);
-- The claim reads this one from the left and nothing else: one lane after another, best job first. The sign is
-- turned so that both columns ascend, and a scan can go on after (urgency, number) of the last one.
CREATE INDEX jobs_ready ON jobs (topic, task, (-priority), number) WHERE state = 1;
-- A million delayed jobs cost a claim one look at the left end of this.
CREATE INDEX jobs_waiting ON jobs (run_at) WHERE state = 0 AND blocked = 0;
-- Those of one topic, for programs that pull jobs by hand. The tenant is there to be passed over without a look at the
-- row.
CREATE INDEX jobs_delayed ON jobs (topic, run_at, number, tenant) WHERE state = 0 AND blocked = 0;
CREATE INDEX jobs_blocked ON jobs (number) WHERE blocked > 0;
CREATE INDEX jobs_leased ON jobs (leased_until) WHERE state = 2;
CREATE INDEX jobs_expiring ON jobs (expires_at, number) WHERE expires_at IS NOT NULL AND state < 2 AND attempt = 0;
-- For people: newest first.
CREATE INDEX jobs_number ON jobs (number);
-- Delayed jobs by lane. Jobs that are due at once pay nothing for it.
CREATE INDEX jobs_pending_by_lane ON jobs (topic, task, number) WHERE state = 0;
-- Nor do jobs of the root tenant, where there is no other.
CREATE INDEX jobs_tenant ON jobs (tenant, number) WHERE tenant <> 'root';
CREATE INDEX jobs_retrying ON jobs (number) WHERE attempt > 0 AND state < 2;
CREATE INDEX jobs_correlation ON jobs (correlation_id, number) WHERE correlation_id IS NOT NULL;
CREATE INDEX jobs_key ON jobs (key, number) WHERE key IS NOT NULL;
-- Due jobs that were delayed once: with the first jobs of the lanes this gives the longest wait without a scan.
CREATE INDEX jobs_promoted ON jobs (run_at) WHERE run_at > created_at AND state = 1;
-- What runs of limited topics, to be counted. Jobs of other topics without a limit key are in none of these three.
CREATE INDEX jobs_limited ON jobs (topic, tenant, limit_key) WHERE state = 2 AND limit_key IS NOT NULL;
-- Due jobs by key, so that those of a key without room are passed over together.
CREATE INDEX jobs_by_limit_key ON jobs (topic, task, tenant, limit_key, (-priority), number)
    WHERE state = 1 AND limit_key IS NOT NULL;
-- The first job of a key in strict order, of those that do not run. state + 0: only queries with the same words use it.
-- To the planner it would otherwise look as good as the two above, where it would be read from end to end.
CREATE INDEX jobs_in_key_order ON jobs (topic, tenant, limit_key, number)
    WHERE limit_key IS NOT NULL AND (state + 0 = 1 OR state + 0 = 0 AND reserves > 0);

-- Running jobs that were claimed together, up to 63 in one row. Most jobs are settled within milliseconds, and a row
-- with its index entries for each would cost more than everything else that is done for them. Before anything but its
-- completion is written about such a job, it moves back to jobs (unbatch). All jobs of a batch are of one tenant. Jobs
-- with a key, a limit key or a lease of their own length are never put into a batch, nor are those with dependents.
CREATE TABLE leased_batches (
    batch        bigint PRIMARY KEY, -- fence / 64
    leased_until bigint NOT NULL,
    claimed_at   bigint NOT NULL,
    store_handle bigint NOT NULL,
    held_mask    bigint NOT NULL, -- bit 1 is set while the first job is in the batch, and so on
    tenant       text   NOT NULL,
    worker       text   NOT NULL,
    ids          uuid[] NOT NULL,
    last_id      uuid   NOT NULL, -- the greatest of them
    jobs         jobs[] NOT NULL  -- as they were before they were claimed
) WITH (
    fillfactor = 70, -- held_mask changes
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 5000,
    toast.autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off
);
ALTER TABLE leased_batches ALTER COLUMN jobs SET STORAGE EXTERNAL;
CREATE INDEX leased_batches_leased ON leased_batches (leased_until);
-- Ids grow with time: only a batch whose last id is not before a new one can hold it, and there is rarely any.
CREATE INDEX leased_batches_last_id ON leased_batches (last_id);

-- Finished jobs: written once, read by people, removed when their time is over.
CREATE TABLE finished_jobs (
    id                  uuid     PRIMARY KEY,
    number              bigint   NOT NULL,
    priority            bigint   NOT NULL,
    run_at              bigint   NOT NULL,
    created_at          bigint   NOT NULL,
    finished_at         bigint   NOT NULL,
    prune_at            bigint,
    fence               bigint   NOT NULL,
    claimed_at          bigint,
    started_at          bigint,
    timeout_us          bigint,
    lease_us            bigint,
    retention_us        bigint,
    retention_failed_us bigint,
    attempt             integer  NOT NULL,
    max_attempts        integer,
    reserves            integer  NOT NULL,
    timeouts            integer,
    releases            integer,
    buries              integer,
    kicks               integer,
    touches             integer,
    state               smallint NOT NULL CHECK (state BETWEEN 3 AND 5),
    key_until           smallint,
    format              smallint NOT NULL,
    buried              boolean  NOT NULL DEFAULT false,
    has_dependents      boolean  NOT NULL DEFAULT false,
    has_separate_body   boolean  NOT NULL,
    topic               text     NOT NULL,
    task                text     NOT NULL,
    tenant              text     NOT NULL,
    worker              text,
    retry               text,
    key                 text,
    correlation_id      text,
    user_id             text,
    service_id          text,
    limit_key           text,
    headers             text,
    error_summary       text,
    payload             text,
    raw                 bytea,
    result              text
) WITH (
    -- A tenth at a time: every vacuum reads all of the indexes, which at a fiftieth cost more than the deletes did.
    -- What is waiting for it is a tenth more room, filled again afterwards.
    autovacuum_vacuum_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.05, vacuum_truncate = off
);
ALTER TABLE finished_jobs ALTER COLUMN result SET STORAGE EXTERNAL;
CREATE INDEX finished_jobs_number ON finished_jobs (number);
CREATE INDEX finished_jobs_lane ON finished_jobs (topic, task, number);
CREATE INDEX finished_jobs_tenant ON finished_jobs (tenant, number) WHERE tenant <> 'root';
CREATE INDEX finished_jobs_failed_or_cancelled ON finished_jobs (state, number) WHERE state > 3;
-- In the order in which they are kicked.
CREATE INDEX finished_jobs_failed ON finished_jobs (topic, finished_at, number, tenant) WHERE state = 4;
CREATE INDEX finished_jobs_correlation ON finished_jobs (correlation_id, number) WHERE correlation_id IS NOT NULL;
CREATE INDEX finished_jobs_key ON finished_jobs (key, number) WHERE key IS NOT NULL;

-- When finished jobs are to be pruned: those that were finished together in one row, because an index of prune_at
-- would cost each of them as much as its own row does. A job that was requeued or deleted since is simply not found.
-- number: the smallest, for the order of jobs whose time is the same.
CREATE TABLE retention_queue (
    prune_at bigint NOT NULL,
    number   bigint NOT NULL,
    ids      uuid[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, vacuum_truncate = off);
ALTER TABLE retention_queue ALTER COLUMN ids SET STORAGE EXTERNAL;
CREATE INDEX retention_queue_next ON retention_queue (prune_at, number);

-- Bodies too large to be copied whenever their row is written. Not compressed: that costs more than it saves.
-- Where a job's tenant is written beside its id, here and below, it is for row-level security, which asks each row by
-- itself. It is part of this key because callers write bodies: with ids alone one could stand in another's way.
CREATE TABLE bodies (
    id      uuid NOT NULL,
    tenant  text NOT NULL,
    payload text,
    raw     bytea,
    PRIMARY KEY (id, tenant)
) WITH (autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
ALTER TABLE bodies ALTER COLUMN payload SET STORAGE EXTERNAL;
ALTER TABLE bodies ALTER COLUMN raw SET STORAGE EXTERNAL;

CREATE TABLE progress (
    id         uuid PRIMARY KEY,
    tenant     text NOT NULL,
    percent    double precision,
    message    text,
    stage      text,
    updated_at bigint,
    checkpoint text
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE progress ALTER COLUMN checkpoint SET STORAGE EXTERNAL;

-- Attempts that did not complete. ordinal counts on across requeues, attempt starts again.
CREATE TABLE attempts (
    id         uuid    NOT NULL,
    tenant     text    NOT NULL,
    ordinal    integer NOT NULL,
    attempt    integer NOT NULL,
    worker     text,
    started_at bigint,
    ended_at   bigint  NOT NULL,
    error      text    NOT NULL,
    PRIMARY KEY (id, ordinal)
);

-- Steps that have finished; ordinal tells their order. The first output of a name stands.
CREATE TABLE steps (
    id          uuid    NOT NULL,
    ordinal     integer NOT NULL,
    attempt     integer NOT NULL,
    started_at  bigint  NOT NULL,
    finished_at bigint  NOT NULL,
    tenant      text    NOT NULL,
    worker      text,
    name        text    NOT NULL,
    output      text    NOT NULL,
    PRIMARY KEY (id, name)
) WITH (autovacuum_vacuum_scale_factor = 0.05, vacuum_truncate = off);
ALTER TABLE steps ALTER COLUMN output SET STORAGE EXTERNAL;

-- Which jobs run after which: kept as long as the child is. unresolved: the child still waits for this parent. The
-- tenant is part of the key because callers write here, and asked for with every id.
CREATE TABLE dependencies (
    child      uuid    NOT NULL,
    parent     uuid    NOT NULL,
    tenant     text    NOT NULL, -- of both
    position   integer NOT NULL, -- in the order in which they were named
    after_any  boolean NOT NULL,
    unresolved boolean NOT NULL,
    PRIMARY KEY (child, parent, tenant)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, vacuum_truncate = off);
CREATE INDEX dependencies_parent ON dependencies (parent, child);
CREATE INDEX dependencies_waiting ON dependencies (parent, child) WHERE unresolved;

-- Parents that have ended, until all jobs that wait for them are released or cancelled: nearly always empty. State 6:
-- it was deleted before it had ended; NULL: nothing waits for it any more, and it may have no dependents left. There
-- is no primary key, so that no writer waits for another here.
CREATE TABLE ended_parents (
    parent uuid     NOT NULL,
    tenant text     NOT NULL,
    state  smallint CHECK (state BETWEEN 3 AND 6)
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = off
);
CREATE INDEX ended_parents_parent ON ended_parents (parent) WHERE state IS NOT NULL;
CREATE INDEX ended_parents_unreferenced ON ended_parents (parent) WHERE state IS NULL;

CREATE TABLE job_keys (
    tenant text NOT NULL,
    scope  text NOT NULL, -- the task, or the topic of a job without one
    key    text NOT NULL,
    id     uuid NOT NULL,
    PRIMARY KEY (tenant, scope, key)
);

CREATE TABLE topics (
    topic        text    PRIMARY KEY,
    paused_until bigint,
    fair         boolean NOT NULL DEFAULT false, -- as in limits, for roles that may not read the shares of tenants
    limits_at    bigint, -- when those were set
    limits       jsonb   -- as stores/limit_check.py reads it
);

-- How far the rates of limited topics are used up: of a topic (tenant and key empty) or of a key. Rows whose moment has
-- passed mean nothing.
CREATE TABLE rate_meters (
    topic      text   NOT NULL,
    tenant     text   NOT NULL,
    limit_key  text   NOT NULL,
    used_until bigint NOT NULL,
    PRIMARY KEY (topic, tenant, limit_key)
) WITH (fillfactor = 50);
CREATE INDEX rate_meters_used_until ON rate_meters (used_until);

-- What every write appends instead of changing a counter that all writers would queue up for. Stores that have written
-- for a while roll it up into job_counts, minute_metrics and lane_minute_metrics; statistics add up both.
CREATE TABLE counter_deltas (
    minute           bigint  NOT NULL,
    tenant           text    NOT NULL,
    topic            text    NOT NULL,
    task             text    NOT NULL,
    -- how many more jobs are in each state now
    waiting          integer NOT NULL DEFAULT 0,
    ready            integer NOT NULL DEFAULT 0,
    running          integer NOT NULL DEFAULT 0,
    completed        integer NOT NULL DEFAULT 0,
    failed           integer NOT NULL DEFAULT 0,
    cancelled        integer NOT NULL DEFAULT 0,
    -- what happened
    enqueued_events  integer NOT NULL DEFAULT 0,
    completed_events integer NOT NULL DEFAULT 0,
    failed_events    integer NOT NULL DEFAULT 0,
    cancelled_events integer NOT NULL DEFAULT 0,
    retried_events   integer NOT NULL DEFAULT 0,
    -- how long it took: the sum, and the bucket of each (stores/reports.py)
    run_us           bigint,
    run_buckets      smallint[],
    wait_us          bigint,
    wait_buckets     smallint[]
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 1000000000
    -- Its pages are given back, unlike those of others: it is read from end to end, and after a burst in many topics
    -- nearly all of it is empty. Vacuum does not queue for the lock, and gives up when another session waits.
);

CREATE TABLE job_counts (
    tenant    text   NOT NULL,
    topic     text   NOT NULL,
    task      text   NOT NULL,
    waiting   bigint NOT NULL,
    ready     bigint NOT NULL,
    running   bigint NOT NULL,
    completed bigint NOT NULL,
    failed    bigint NOT NULL,
    cancelled bigint NOT NULL,
    PRIMARY KEY (tenant, topic, task)
) WITH (fillfactor = 50);

-- What happened, by minute: counts (bucket 0) and durations (bucket = see stores/reports.py). Metrics:
--   0 enqueued   1 completed   2 failed   3 cancelled   4 retried   5 run time   6 wait time
-- Of all topics together: an hour is a few thousand rows, however many topics there are.
CREATE TABLE minute_metrics (
    minute bigint   NOT NULL,
    metric smallint NOT NULL,
    bucket smallint NOT NULL,
    n      bigint   NOT NULL,
    total  bigint   NOT NULL,
    PRIMARY KEY (minute, metric, bucket)
) WITH (fillfactor = 50);

-- The same by lane, without the buckets: a row for each minute in which something happened, kept for six hours.
CREATE TABLE lane_minute_metrics (
    minute    bigint NOT NULL,
    topic     text   NOT NULL,
    task      text   NOT NULL,
    enqueued  bigint NOT NULL,
    completed bigint NOT NULL,
    failed    bigint NOT NULL,
    cancelled bigint NOT NULL,
    retried   bigint NOT NULL,
    runs      bigint NOT NULL,
    run_us    bigint NOT NULL,
    waits     bigint NOT NULL,
    wait_us   bigint NOT NULL,
    PRIMARY KEY (minute, topic, task)
) WITH (fillfactor = 50);

CREATE TABLE workers (
    name       text    PRIMARY KEY,
    host       text    NOT NULL,
    pid        integer NOT NULL,
    version    text    NOT NULL,
    started_at bigint  NOT NULL,
    seen_at    bigint  NOT NULL,
    details    text    NOT NULL
) WITH (fillfactor = 50);

-- Small things beside the jobs: keys, users, secrets, lines of the audit log. JSON. They belong to no tenant, so there
-- is no column for it and callers under row-level security see none.
CREATE TABLE documents (
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    expires_at bigint,
    version    bigint NOT NULL CHECK (version > 0),
    kind       text   NOT NULL COLLATE "C",
    id         text   NOT NULL COLLATE "C", -- in the order of its bytes, as the other stores have it
    body       bytea  NOT NULL,
    PRIMARY KEY (kind, id)
);
CREATE INDEX documents_newest ON documents (kind, created_at, id);
CREATE INDEX documents_expiring ON documents (expires_at, kind, id) WHERE expires_at IS NOT NULL;

-- Jobs that have a row of their own, finished or not.
CREATE VIEW single_row_jobs WITH (security_invoker = true) AS
SELECT id, number, priority, run_at, created_at, NULL::bigint AS finished_at, NULL::bigint AS prune_at, fence,
       leased_until, claimed_at, started_at, expires_at, timeout_us, attempt, max_attempts, blocked, state,
       key_until, format, cancel_requested, suspect, has_separate_body, false AS buried, topic, task, tenant, worker,
       key, correlation_id, user_id, service_id, limit_key, headers, retry, lease_us, reserves, timeouts, releases,
       buries, kicks, touches,
       error_summary, payload, raw, NULL::text AS result
FROM jobs
UNION ALL
SELECT id, number, priority, run_at, created_at, finished_at, prune_at, fence,
       NULL::bigint, claimed_at, started_at, NULL::bigint, timeout_us, attempt, max_attempts, 0, state,
       key_until, format, false, false, has_separate_body, buried, topic, task, tenant, worker,
       key, correlation_id, user_id, service_id, limit_key, headers, retry, lease_us, reserves, timeouts, releases,
       buries, kicks, touches,
       error_summary, payload, raw, result
FROM finished_jobs;

-- Jobs in leased batches. batch_ids: the ids of the whole batch; looking for an id there first saves opening all of
-- them.
CREATE VIEW batched_jobs WITH (security_invoker = true) AS
SELECT r.id, r.number, r.priority, r.run_at, r.created_at, NULL::bigint AS finished_at, NULL::bigint AS prune_at,
       p.batch * 64 + r.ordinality AS fence, p.leased_until, p.claimed_at, NULL::bigint AS started_at, r.expires_at,
       r.timeout_us, r.attempt + 1 AS attempt, r.max_attempts, r.blocked, 2::smallint AS state, r.key_until, r.format,
       r.cancel_requested, r.suspect, r.has_separate_body, false AS buried, r.topic, r.task, r.tenant, p.worker, r.key,
       r.correlation_id, r.user_id, r.service_id, r.limit_key, r.headers, r.retry, r.lease_us,
       r.reserves + 1 AS reserves, r.timeouts, r.releases,
       r.buries, r.kicks, r.touches, r.error_summary, r.payload, r.raw, NULL::text AS result,
       p.ids AS batch_ids
FROM leased_batches p, unnest(p.jobs) WITH ORDINALITY AS r
WHERE p.batch > 0 -- all of them, through an index, where settings forbid to scan tables
    AND (p.held_mask >> r.ordinality::integer) & 1 = 1;

-- Every job, for reading.
CREATE VIEW all_jobs WITH (security_invoker = true) AS
SELECT *, NULL::uuid[] AS batch_ids FROM single_row_jobs UNION ALL SELECT * FROM batched_jobs;

-- Every job without its bodies, in words and times, for people's own SQL and for dashboards. shown_state is the finest
-- name of a state (docs/reference/states.md).
CREATE VIEW job_status WITH (security_invoker = true) AS
SELECT j.id AS job_id, j.tenant, j.topic, j.task,
       CASE j.state WHEN 2 THEN 'running' WHEN 3 THEN 'completed' WHEN 4 THEN 'failed' WHEN 5 THEN 'cancelled'
                    ELSE 'pending' END AS state,
       CASE WHEN j.state = 2 AND j.started_at IS NULL THEN 'claimed'
            WHEN j.state = 2 THEN 'running' WHEN j.state = 3 THEN 'completed' WHEN j.state = 4 THEN 'failed'
            WHEN j.state = 5 THEN 'cancelled'
            WHEN j.blocked > 0 THEN 'blocked' WHEN j.attempt > 0 THEN 'retrying'
            WHEN j.run_at > date_part('epoch', clock_timestamp()) * 1000000 THEN 'delayed'
            ELSE 'pending' END AS shown_state,
       j.attempt, j.max_attempts, j.priority, j.correlation_id, j.user_id,
       p.percent AS progress_percent, p.message AS progress_message, p.stage AS progress_stage, j.error_summary,
       timestamptz 'epoch' + j.created_at * interval '1 microsecond' AS created_at,
       timestamptz 'epoch' + j.run_at * interval '1 microsecond' AS run_at,
       timestamptz 'epoch' + j.started_at * interval '1 microsecond' AS started_at,
       timestamptz 'epoch' + j.finished_at * interval '1 microsecond' AS finished_at
FROM all_jobs j LEFT JOIN progress p ON p.id = j.id;
