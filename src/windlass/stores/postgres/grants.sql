-- What a role needs that enqueues in transactions of its own, and reads the job it meets when a key is taken.

-- name: callers
-- No UPDATE, and DELETE on nothing: it can neither claim, settle, cancel, change nor remove a job.
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT INSERT ON {schema}.jobs, {schema}.bodies, {schema}.keys, {schema}.tally TO {role};
GRANT USAGE ON SEQUENCE {schema}.numbers TO {role};
GRANT SELECT ON {schema}.keys, {schema}.all_jobs, {schema}.unpacked_jobs, {schema}.packed_jobs, {schema}.jobs,
    {schema}.packs, {schema}.finished, {schema}.bodies, {schema}.attempts, {schema}.progress, {schema}.steps,
    {schema}.counts, {schema}.tally TO {role};
GRANT EXECUTE ON FUNCTION {schema}.enqueue_given, {schema}.get_given, {schema}.enqueue, {schema}.records,
    {schema}.hint, {schema}.now_us, {schema}.minute_of, {schema}.spread, {schema}.are_packed, {schema}.has_saved TO {role};

-- name: members
-- Policies hold for members of this role, and show nothing to anybody else.
GRANT windlass_api TO {role};
