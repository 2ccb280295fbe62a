-- What a role needs that enqueues in transactions of its own, and reads the job it meets when a key is taken.

-- name: callers
-- No UPDATE, and DELETE on nothing: it can neither claim, settle, cancel, change nor remove a job. Of counters it writes
-- those of new jobs, no durations.
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT INSERT ON {schema}.jobs, {schema}.bodies, {schema}.keys TO {role};
GRANT INSERT (minute, tenant, topic, task, waiting, ready, did_enqueue) ON {schema}.tally TO {role};
GRANT USAGE ON SEQUENCE {schema}.numbers TO {role};
GRANT SELECT ON {schema}.keys, {schema}.all_jobs, {schema}.unpacked_jobs, {schema}.packed_jobs, {schema}.jobs,
    {schema}.packs, {schema}.finished, {schema}.bodies, {schema}.attempts, {schema}.progress, {schema}.steps,
    {schema}.counts, {schema}.tally, {schema}.schema_versions TO {role};
GRANT SELECT (topic, fair) ON {schema}.topics TO {role};
GRANT EXECUTE ON FUNCTION {schema}.enqueue_given, {schema}.get_given, {schema}.limits_given, {schema}.jobs_by_topic,
    {schema}.enqueue, {schema}.in_view, {schema}.replace_job, {schema}.records, {schema}.hint, {schema}.now_us,
    {schema}.minute_of, {schema}.spread, {schema}.are_packed, {schema}.has_saved, {schema}.parents_of TO {role};
GRANT SELECT ON {schema}.dependencies TO {role};

-- name: replacing
-- The columns that replace_job writes: no lease, no fence and no attempt is among them.
GRANT UPDATE (state, priority, run_at, expires_at, format, body_apart, payload, raw) ON {schema}.jobs TO {role};
GRANT DELETE ON {schema}.bodies TO {role};

-- name: awaiting
-- A job that others are to run after is marked, and leaves its pack; one that is to wait is held back. How it is to go on
-- when what it waited for has ended is left to workers.
GRANT INSERT ON {schema}.dependencies, {schema}.endings TO {role};
GRANT UPDATE (awaited, blocked, state) ON {schema}.jobs TO {role};
GRANT UPDATE (awaited, prune_at) ON {schema}.finished TO {role};
GRANT UPDATE (held), DELETE ON {schema}.packs TO {role};
GRANT EXECUTE ON FUNCTION {schema}.attach, {schema}.state_of, {schema}.unpack_jobs, {schema}.unpack, {schema}.take_out
    TO {role};

-- name: members
-- Policies hold for members of this role, and show nothing to anybody else.
GRANT tidewheel_api TO {role};
