-- name: make_due
-- For delayed jobs that are claimed by id or kicked.
UPDATE tidewheel_jobs SET state = 1, run_at = min(run_at, :now), kicks = kicks + :kicks
WHERE number IN (SELECT value FROM json_each(:numbers))

-- name: touch
-- Extend the lease by the length for which it was granted. Fenced like extend.
UPDATE tidewheel_jobs SET leased_until = :now + coalesce(lease_us, :lease_us), touches = touches + 1
WHERE id = :id AND fence = :fence AND state = 2 AND leased_until > :leases_at
RETURNING coalesce(lease_us, :lease_us)

-- name: failed_by_time
-- In the order of tidewheel_jobs_failed. For a tenant with few jobs, {index} is that of tenants (pull.py). The same
-- holds for the next three.
SELECT {columns} FROM tidewheel_jobs INDEXED BY {index}
WHERE {tenant} AND state = 4 AND topic = ? ORDER BY finished_at, number LIMIT ?

-- name: delayed_by_time
SELECT number, tenant, topic, task FROM tidewheel_jobs INDEXED BY {index}
WHERE {tenant} AND state = 0 AND blocked = 0 AND topic = ? AND run_at > ? ORDER BY run_at, number LIMIT ?

-- name: first_failed
-- For a peek: read from the index alone.
SELECT number FROM tidewheel_jobs INDEXED BY {index}
WHERE {tenant} AND state = 4 AND topic = ? ORDER BY finished_at, number LIMIT 1

-- name: first_delayed
SELECT number FROM tidewheel_jobs INDEXED BY {index}
WHERE {tenant} AND state = 0 AND blocked = 0 AND topic = ? AND run_at > ? ORDER BY run_at, number LIMIT 1

-- name: count_jobs
SELECT coalesce(sum(n), 0) FROM tidewheel_job_counts WHERE {tenant}

-- name: first_ready_of_few
-- For a tenant with few jobs: {index} is always that of tenants.
SELECT number FROM tidewheel_jobs INDEXED BY {index}
WHERE {tenant} AND state = 1 AND topic = ? ORDER BY priority DESC, number LIMIT 1

-- name: first_ready_of_lane
-- Skips jobs of other tenants until one of this tenant is found.
SELECT -priority, number FROM tidewheel_jobs INDEXED BY tidewheel_jobs_ready
WHERE {tenant} AND state = 1 AND topic = ? AND task = ? ORDER BY priority DESC, number LIMIT 1

-- name: id
SELECT id FROM tidewheel_jobs WHERE {tenant} AND number = ?

-- name: counts
SELECT topic, task, state, sum(n) FROM tidewheel_job_counts WHERE {tenant} GROUP BY topic, task, state

-- name: counts_of
SELECT topic, task, state, sum(n) FROM tidewheel_job_counts
WHERE {tenant} AND topic IN (SELECT value FROM json_each(?)) GROUP BY topic, task, state

-- name: unpromoted
-- Delayed jobs that are due and not promoted yet, and how many of them are urgent. With a LIMIT, because there may be a
-- million.
SELECT topic, count(*), sum(urgent) FROM (
    SELECT topic, priority > {urgent} AS urgent FROM tidewheel_jobs INDEXED BY tidewheel_jobs_waiting
    WHERE {tenant} AND state = 0 AND blocked = 0 AND run_at <= ? LIMIT ?
)
GROUP BY topic

-- name: unpromoted_in_topics
-- The same for one topic.
SELECT count(*), coalesce(sum(urgent), 0) FROM (
    SELECT priority > {urgent} AS urgent FROM tidewheel_jobs INDEXED BY tidewheel_jobs_delayed
    WHERE {tenant} AND state = 0 AND blocked = 0 AND run_at <= ? AND topic = ? LIMIT ?
)

-- name: blocked
SELECT topic, count(*) FROM (
    SELECT topic FROM tidewheel_jobs INDEXED BY tidewheel_jobs_blocked
    WHERE {tenant} AND blocked > 0 AND state = 0 LIMIT ?
)
GROUP BY topic

-- name: lowest_priorities
-- The lowest priority of each lane, in the order of the lanes. It nearly always shows that all jobs of a lane are
-- urgent, or none.
SELECT json_group_array((
    SELECT priority FROM tidewheel_jobs INDEXED BY tidewheel_jobs_ready
    WHERE state = 1 AND topic = json_extract(lanes.value, '$[0]') AND task = json_extract(lanes.value, '$[1]')
    ORDER BY priority, number DESC LIMIT 1
))
FROM json_each(?) AS lanes

-- name: urgent
-- For a lane that has urgent jobs and others. The LIMIT counts jobs of all tenants.
SELECT count(*) FROM tidewheel_jobs WHERE {tenant} AND number IN (
    SELECT number FROM tidewheel_jobs INDEXED BY tidewheel_jobs_ready
    WHERE state = 1 AND topic = ? AND task = ? AND priority > {urgent}
    ORDER BY priority DESC, number LIMIT ?
)
