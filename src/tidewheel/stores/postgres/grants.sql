-- What a role needs that enqueues in transactions of its own, and reads the job it meets when a key is taken.

-- name: callers
-- No UPDATE, and DELETE on nothing: it can neither claim, settle, cancel, change nor remove a job. Of counters it
-- writes those of new jobs, no durations.
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT INSERT ON {schema}.jobs, {schema}.bodies, {schema}.job_keys TO {role};
GRANT INSERT (minute, tenant, topic, task, waiting, ready, enqueued_events) ON {schema}.counter_deltas TO {role};
GRANT USAGE ON SEQUENCE {schema}.numbers TO {role};
GRANT SELECT ON {schema}.job_keys, {schema}.all_jobs, {schema}.single_row_jobs, {schema}.batched_jobs, {schema}.jobs,
    {schema}.leased_batches, {schema}.finished_jobs, {schema}.bodies, {schema}.attempts, {schema}.progress,
    {schema}.steps,
    {schema}.job_counts, {schema}.counter_deltas, {schema}.schema_versions TO {role};
GRANT SELECT (topic, fair) ON {schema}.topics TO {role};
GRANT EXECUTE ON FUNCTION {schema}.enqueue_json, {schema}.get_json, {schema}.store_limits_json, {schema}.jobs_by_topic,
    {schema}.enqueue, {schema}.meets_condition, {schema}.replace_job, {schema}.jobs_as_json, {schema}.ready_hint,
    {schema}.now_us,
    {schema}.minute_of, {schema}.repeat_single_value, {schema}.any_batched, {schema}.has_saved_progress,
    {schema}.parents_of TO {role};
GRANT SELECT ON {schema}.dependencies TO {role};

-- name: replacing
-- The columns that replace_job writes: no lease, no fence and no attempt is among them.
GRANT UPDATE (state, priority, run_at, expires_at, format, has_separate_body, payload, raw) ON {schema}.jobs TO {role};
GRANT DELETE ON {schema}.bodies TO {role};

-- name: awaiting
-- A job that others are to run after is marked, and leaves its batch; a job that is to wait is blocked. Workers
-- release it when its parents have ended.
GRANT INSERT ON {schema}.dependencies, {schema}.ended_parents TO {role};
GRANT UPDATE (has_dependents, blocked, state) ON {schema}.jobs TO {role};
GRANT UPDATE (has_dependents, prune_at) ON {schema}.finished_jobs TO {role};
GRANT UPDATE (held_mask), DELETE ON {schema}.leased_batches TO {role};
GRANT EXECUTE ON FUNCTION {schema}.add_parents, {schema}.state_of, {schema}.unbatch_jobs, {schema}.unbatch,
    {schema}.remove_from_batches
    TO {role};

-- name: members
-- Policies hold for members of this role, and show nothing to anybody else.
GRANT tidewheel_api TO {role};
