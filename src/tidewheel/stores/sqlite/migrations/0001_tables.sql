-- All tables. docs/decisions/0002-schema.md says which part of the product needs which column.
-- Times are microseconds since 1970. Durations end in _us. State codes:
--   0 waiting (delayed or blocked)   1 ready   2 running   3 completed   4 failed   5 cancelled
-- 0 and 1 are both shown as "pending". They differ so that a claim does not read delayed jobs.

CREATE TABLE tidewheel_jobs (
    number              INTEGER PRIMARY KEY,
    id                  BLOB    NOT NULL UNIQUE CHECK (length(id) = 16),
    state               INTEGER NOT NULL CHECK (state BETWEEN 0 AND 5),
    topic               TEXT    NOT NULL,
    task                TEXT    NOT NULL,
    tenant              TEXT    NOT NULL,
    priority            INTEGER NOT NULL,
    run_at              INTEGER NOT NULL,
    created_at          INTEGER NOT NULL,
    attempt             INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    max_attempts        INTEGER,
    fence               INTEGER NOT NULL DEFAULT 0,
    leased_until        INTEGER,
    worker              TEXT,
    claimed_at          INTEGER,
    started_at          INTEGER,
    finished_at         INTEGER,
    prune_at            INTEGER,
    suspect             INTEGER NOT NULL DEFAULT 0,
    counts_if_lost      INTEGER NOT NULL DEFAULT 0,
    cancel_requested    INTEGER NOT NULL DEFAULT 0,
    blocked             INTEGER NOT NULL DEFAULT 0, -- how many jobs it waits for
    has_dependents      INTEGER NOT NULL DEFAULT 0, -- 1 while other jobs run after it
    timeout_us          INTEGER,
    lease_us            INTEGER,
    retention_us        INTEGER,
    retention_failed_us INTEGER,
    expires_at          INTEGER,
    retry               TEXT,
    key                 TEXT,
    key_until           INTEGER,
    correlation_id      TEXT,
    user_id             TEXT,
    service_id          TEXT,
    limit_key           TEXT,
    headers             TEXT,
    error_summary       TEXT,
    buried              INTEGER NOT NULL DEFAULT 0,
    reserves            INTEGER NOT NULL DEFAULT 0,
    timeouts            INTEGER NOT NULL DEFAULT 0,
    releases            INTEGER NOT NULL DEFAULT 0,
    buries              INTEGER NOT NULL DEFAULT 0,
    kicks               INTEGER NOT NULL DEFAULT 0,
    touches             INTEGER NOT NULL DEFAULT 0,
    CHECK ((state = 2) = (leased_until IS NOT NULL)),
    CHECK ((state > 2) = (finished_at IS NOT NULL))
) STRICT;

-- A claim reads this index from the left: one lane after another, best job first.
CREATE INDEX tidewheel_jobs_ready ON tidewheel_jobs (topic, task, priority DESC, number) WHERE state = 1;
-- A claim reads only the first entry, however many delayed jobs there are.
CREATE INDEX tidewheel_jobs_waiting ON tidewheel_jobs (run_at) WHERE state = 0 AND blocked = 0;
-- Delayed jobs of one topic, for programs that pull jobs by hand. The tenant is in the index so that jobs of other
-- tenants are skipped without reading their rows.
CREATE INDEX tidewheel_jobs_delayed ON tidewheel_jobs (topic, run_at, number, tenant) WHERE state = 0 AND blocked = 0;
CREATE INDEX tidewheel_jobs_blocked ON tidewheel_jobs (number) WHERE blocked > 0;
CREATE INDEX tidewheel_jobs_leased ON tidewheel_jobs (leased_until) WHERE state = 2;
CREATE INDEX tidewheel_jobs_expiring ON tidewheel_jobs (expires_at)
    WHERE expires_at IS NOT NULL AND state < 2 AND attempt = 0;
CREATE INDEX tidewheel_jobs_retention ON tidewheel_jobs (prune_at) WHERE prune_at IS NOT NULL;
-- For lists: newest first, without reading jobs in other states.
CREATE INDEX tidewheel_jobs_pending ON tidewheel_jobs (number) WHERE state < 2;
CREATE INDEX tidewheel_jobs_completed ON tidewheel_jobs (number) WHERE state = 3;
CREATE INDEX tidewheel_jobs_topic ON tidewheel_jobs (topic, number);
-- With the lane, so that the jobs of one lane are found without reading those of all others.
CREATE INDEX tidewheel_jobs_failed_or_cancelled ON tidewheel_jobs (state, number, topic, task) WHERE state > 3;
-- Failed jobs in the order in which they are kicked.
CREATE INDEX tidewheel_jobs_failed ON tidewheel_jobs (topic, finished_at, number, tenant) WHERE state = 4;
CREATE INDEX tidewheel_jobs_retrying ON tidewheel_jobs (number) WHERE attempt > 0 AND state < 2;
CREATE INDEX tidewheel_jobs_correlation ON tidewheel_jobs (correlation_id, number)
    WHERE correlation_id IS NOT NULL;
CREATE INDEX tidewheel_jobs_key ON tidewheel_jobs (key, number) WHERE key IS NOT NULL;
-- Jobs of one tenant. Jobs of the root tenant are left out, so that writing them costs nothing here.
CREATE INDEX tidewheel_jobs_tenant ON tidewheel_jobs (tenant, number) WHERE tenant <> 'root';
-- Due jobs that were delayed once. With the first job of each lane this gives the longest wait without a scan.
CREATE INDEX tidewheel_jobs_promoted ON tidewheel_jobs (run_at) WHERE run_at > created_at AND state = 1;

-- Running jobs of limited topics, for counting them. A job without a limit key, of a topic without limits, is in none
-- of these three indexes.
CREATE INDEX tidewheel_jobs_limited ON tidewheel_jobs (topic, tenant, limit_key)
    WHERE state = 2 AND limit_key IS NOT NULL;
-- Due jobs by limit key, so that all jobs of a key at its limit are skipped together.
CREATE INDEX tidewheel_jobs_by_limit_key ON tidewheel_jobs (topic, task, tenant, limit_key, priority DESC, number)
    WHERE state = 1 AND limit_key IS NOT NULL;
-- The first job of each limit key, for topics with strict order.
CREATE INDEX tidewheel_jobs_in_key_order ON tidewheel_jobs (topic, tenant, limit_key, number)
    WHERE limit_key IS NOT NULL AND (state IN (1, 2) OR state = 0 AND reserves > 0);

-- Bodies have their own table: an UPDATE in SQLite rewrites the whole row, and a claim must not rewrite 10 kB.
CREATE TABLE tidewheel_bodies (
    number  INTEGER PRIMARY KEY,
    format  INTEGER NOT NULL CHECK (format IN (0, 1)), -- 0 json, 1 bytes
    payload BLOB    NOT NULL
) STRICT;

CREATE TABLE tidewheel_results (
    number INTEGER PRIMARY KEY,
    result BLOB NOT NULL
) STRICT;

CREATE TABLE tidewheel_progress (
    number     INTEGER PRIMARY KEY,
    percent    REAL,
    message    TEXT,
    stage      TEXT,
    updated_at INTEGER,
    checkpoint BLOB
) STRICT;

-- Attempts that did not complete. A requeue sets attempt back to 0; ordinal continues.
CREATE TABLE tidewheel_attempts (
    number     INTEGER NOT NULL,
    ordinal    INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    worker     TEXT,
    started_at INTEGER,
    ended_at   INTEGER NOT NULL,
    error      TEXT    NOT NULL,
    PRIMARY KEY (number, ordinal)
) STRICT, WITHOUT ROWID;

-- Steps that have finished, in the order of ordinal. The first output that is written for a name is kept.
CREATE TABLE tidewheel_steps (
    number      INTEGER NOT NULL,
    name        TEXT    NOT NULL,
    ordinal     INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    worker      TEXT,
    started_at  INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    output      BLOB    NOT NULL,
    PRIMARY KEY (number, name)
) STRICT, WITHOUT ROWID;

-- Which job runs after which. A row is kept as long as the child. unresolved: 1 until the end of the parent was
-- applied to the child.
CREATE TABLE tidewheel_dependencies (
    child      INTEGER NOT NULL,
    parent     BLOB    NOT NULL, -- its id, because it may be deleted before the child
    position   INTEGER NOT NULL, -- in the list that the caller gave
    after_any  INTEGER NOT NULL,
    unresolved INTEGER NOT NULL,
    PRIMARY KEY (child, parent)
) STRICT, WITHOUT ROWID;
CREATE INDEX tidewheel_dependencies_parent ON tidewheel_dependencies (parent, child);
CREATE INDEX tidewheel_dependencies_waiting ON tidewheel_dependencies (parent, child) WHERE unresolved = 1;

-- Parents that have ended, kept until all their children are resolved. State 6: deleted before it ended.
CREATE TABLE tidewheel_ended_parents (
    parent BLOB    PRIMARY KEY,
    state  INTEGER NOT NULL CHECK (state BETWEEN 3 AND 6)
) STRICT, WITHOUT ROWID;

CREATE TABLE tidewheel_job_keys (
    tenant TEXT    NOT NULL,
    scope  TEXT    NOT NULL, -- the task, or the topic of a job without a task
    key    TEXT    NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (tenant, scope, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE tidewheel_topics (
    topic        TEXT PRIMARY KEY,
    paused_until INTEGER,
    limits       TEXT -- JSON, see core/topic_limits.py
) STRICT, WITHOUT ROWID;

-- How much of each rate limit is used, for a topic (tenant and limit_key empty) or for a limit key. A row whose
-- used_until has passed has no effect.
CREATE TABLE tidewheel_rate_meters (
    topic      TEXT    NOT NULL,
    tenant     TEXT    NOT NULL,
    limit_key  TEXT    NOT NULL,
    used_until INTEGER NOT NULL,
    PRIMARY KEY (topic, tenant, limit_key)
) STRICT;
CREATE INDEX tidewheel_rate_meters_used_until ON tidewheel_rate_meters (used_until);

-- Updated by every write, so that statistics never count rows.
CREATE TABLE tidewheel_job_counts (
    tenant TEXT    NOT NULL,
    topic  TEXT    NOT NULL,
    task   TEXT    NOT NULL,
    state  INTEGER NOT NULL,
    n      INTEGER NOT NULL,
    PRIMARY KEY (tenant, topic, task, state)
) STRICT, WITHOUT ROWID;

-- Events and durations by minute: events are in bucket 0, stores/reports.py defines the buckets of durations.
-- All topics together, so that an hour is a few thousand rows, however many topics there are.
CREATE TABLE tidewheel_minute_metrics (
    minute INTEGER NOT NULL,
    metric INTEGER NOT NULL,
    bucket INTEGER NOT NULL,
    n      INTEGER NOT NULL,
    total  INTEGER NOT NULL,
    PRIMARY KEY (minute, metric, bucket)
) STRICT, WITHOUT ROWID;

-- The same by lane, without buckets: one row for each minute with an event, kept for six hours. The minute is the
-- first column of the key, so that rows written at the same time are close together in the file.
CREATE TABLE tidewheel_lane_minute_metrics (
    minute    INTEGER NOT NULL,
    topic     TEXT    NOT NULL,
    task      TEXT    NOT NULL,
    enqueued  INTEGER NOT NULL,
    completed INTEGER NOT NULL,
    failed    INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,
    retried   INTEGER NOT NULL,
    runs      INTEGER NOT NULL,
    run_us    INTEGER NOT NULL,
    waits     INTEGER NOT NULL,
    wait_us   INTEGER NOT NULL,
    PRIMARY KEY (minute, topic, task)
) STRICT, WITHOUT ROWID;

CREATE TABLE tidewheel_sequences (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO tidewheel_sequences (name, value) VALUES ('number', 0), ('fence', 0);

CREATE TABLE tidewheel_workers (
    name       TEXT PRIMARY KEY,
    host       TEXT    NOT NULL,
    pid        INTEGER NOT NULL,
    version    TEXT    NOT NULL,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    details    TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

-- Documents that are not jobs: keys, users, secrets, lines of the audit log. JSON. They belong to no tenant.
CREATE TABLE tidewheel_documents (
    kind       TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    body       BLOB    NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    expires_at INTEGER,
    version    INTEGER NOT NULL CHECK (version > 0),
    PRIMARY KEY (kind, id)
) STRICT;
CREATE INDEX tidewheel_documents_newest ON tidewheel_documents (kind, created_at, id);
CREATE INDEX tidewheel_documents_expiring ON tidewheel_documents (expires_at, kind, id) WHERE expires_at IS NOT NULL;

-- Processes to wake up with a datagram to this port on the loopback interface.
CREATE TABLE tidewheel_wakeup_listeners (
    port     INTEGER PRIMARY KEY,
    ready    INTEGER NOT NULL,
    finished INTEGER NOT NULL,
    seen_at  INTEGER NOT NULL
) STRICT;
