-- name: make_due
-- Of a delayed job that somebody asks for or kicks.
UPDATE tidewheel_jobs SET state = 1, run_at = min(run_at, :now), kicks = kicks + :kicks
WHERE number IN (SELECT value FROM json_each(:numbers))

-- name: touch
-- As long again as the lease was granted for. Fenced like extend.
UPDATE tidewheel_jobs SET leased_until = :now + coalesce(lease_us, :lease_us), touches = touches + 1
WHERE id = :id AND fence = :fence AND state = 2 AND leased_until > :leases_at
RETURNING coalesce(lease_us, :lease_us)

-- name: failed_by_time
-- In the order of tidewheel_jobs_failed; of a tenant with few jobs among those, see pulling.py. Likewise the next three.
SELECT {columns} FROM tidewheel_jobs INDEXED BY {index}
WHERE {tenant} AND state = 4 AND topic = ? ORDER BY finished_at, number LIMIT ?

-- name: delayed_by_time
SELECT number, tenant, topic, task FROM tidewheel_jobs INDEXED BY {index}
WHERE {tenant} AND state = 0 AND blocked = 0 AND topic = ? AND run_at > ? ORDER BY run_at, number LIMIT ?

-- name: first_failed
-- The same for who only looks, told by the index alone.
SELECT number FROM tidewheel_jobs INDEXED BY {index}
WHERE {tenant} AND state = 4 AND topic = ? ORDER BY finished_at, number LIMIT 1

-- name: first_delayed
SELECT number FROM tidewheel_jobs INDEXED BY {index}
WHERE {tenant} AND state = 0 AND blocked = 0 AND topic = ? AND run_at > ? ORDER BY run_at, number LIMIT 1

-- name: count_jobs
SELECT coalesce(sum(n), 0) FROM tidewheel_job_counts WHERE {tenant}

-- name: first_ready_of_few
-- Of a tenant with few jobs: the index is always that of tenants.
SELECT number FROM tidewheel_jobs INDEXED BY {index}
WHERE {tenant} AND state = 1 AND topic = ? ORDER BY priority DESC, number LIMIT 1

-- name: first_ready_of_lane
-- Past the jobs of other tenants, until there is one.
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
-- Delayed jobs nobody has promoted yet, and how many of them are urgent. Not all: there may be a million.
SELECT topic, count(*), sum(urgent) FROM (
    SELECT topic, priority > {urgent} AS urgent FROM tidewheel_jobs INDEXED BY tidewheel_jobs_waiting
    WHERE {tenant} AND state = 0 AND blocked = 0 AND run_at <= ? LIMIT ?
)
GROUP BY topic

-- name: unpromoted_in_topics
-- The same of one topic.
SELECT count(*), coalesce(sum(urgent), 0) FROM (
    SELECT priority > {urgent} AS urgent FROM tidewheel_jobs INDEXED BY tidewheel_jobs_delayed
    WHERE {tenant} AND state = 0 AND blocked = 0 AND run_at <= ? AND topic = ? LIMIT ?
)

-- name: blocked
SELECT topic, count(*) FROM (
    SELECT topic FROM tidewheel_jobs INDEXED BY tidewheel_jobs_blocked WHERE {tenant} AND blocked > 0 AND state = 0 LIMIT ?
)
GROUP BY topic

-- name: lowest_priorities
-- One look at the right end of each lane, in their order: nearly always it tells that all, or none, are urgent.
SELECT json_group_array((
    SELECT priority FROM tidewheel_jobs INDEXED BY tidewheel_jobs_ready
    WHERE state = 1 AND topic = json_extract(lanes.value, '$[0]') AND task = json_extract(lanes.value, '$[1]')
    ORDER BY priority, number DESC LIMIT 1
))
FROM json_each(?) AS lanes

-- name: urgent
-- Of a lane that has both. Bounded, whoever they belong to.
SELECT count(*) FROM tidewheel_jobs WHERE {tenant} AND number IN (
    SELECT number FROM tidewheel_jobs INDEXED BY tidewheel_jobs_ready
    WHERE state = 1 AND topic = ? AND task = ? AND priority > {urgent}
    ORDER BY priority DESC, number LIMIT ?
)
