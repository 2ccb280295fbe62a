-- name: counts
SELECT topic, state, sum(n) FROM tidewheel_job_counts WHERE {tenant} GROUP BY topic, state

-- name: unpromoted
-- Delayed jobs that are due and not promoted yet, because no worker has claimed since.
-- The index is named here and below, because that of tenants includes all their finished jobs.
SELECT count(*) FROM tidewheel_jobs INDEXED BY tidewheel_jobs_waiting
WHERE {tenant} AND state = 0 AND blocked = 0 AND run_at <= ?

-- name: blocked
SELECT count(*) FROM tidewheel_jobs INDEXED BY tidewheel_jobs_blocked WHERE {tenant} AND blocked > 0 AND state = 0

-- name: pauses
SELECT topic, paused_until FROM tidewheel_topics WHERE paused_until > ?

-- name: minutes
-- Events by minute; durations (metrics 5 and 6) over the whole time, with NULL as their minute.
-- Minutes later than now were counted before the clock was set back.
SELECT minute, metric, 0, n, 0 FROM tidewheel_minute_metrics WHERE minute BETWEEN ? AND ? AND metric < 5
UNION ALL
SELECT NULL, metric, bucket, sum(n), sum(total) FROM tidewheel_minute_metrics WHERE minute BETWEEN ? AND ? AND metric >= 5
GROUP BY metric, bucket

-- name: oldest_waiting
SELECT run_at FROM tidewheel_jobs WHERE state = 0 AND blocked = 0 AND run_at <= ? ORDER BY run_at LIMIT 1

-- name: oldest_promoted
SELECT run_at FROM tidewheel_jobs WHERE state = 1 AND run_at > created_at ORDER BY run_at LIMIT 1

-- name: first_never_delayed
-- Usually one of the oldest pending jobs was never delayed. If many are delayed, first_of_lanes finds it by lane.
SELECT run_at FROM (
    SELECT state, run_at, created_at FROM tidewheel_jobs WHERE state < 2 ORDER BY number LIMIT ?
)
WHERE state = 1 AND run_at <= created_at LIMIT 1

-- name: first_of_lanes
-- The first job of each lane and priority, read from the index alone: any other column would cost a page of the table
-- for each job. Goes from one priority to the next without reading the jobs between them.
WITH RECURSIVE levels (topic, task, priority) AS (
    SELECT topic, task, (SELECT priority FROM tidewheel_jobs j
                         WHERE j.state = 1 AND j.topic = lanes.topic AND j.task = lanes.task
                         ORDER BY j.priority DESC LIMIT 1)
    FROM (SELECT DISTINCT topic, task FROM tidewheel_job_counts WHERE state = 1 AND n > 0) AS lanes
    UNION ALL
    SELECT topic, task, (SELECT priority FROM tidewheel_jobs j
                         WHERE j.state = 1 AND j.topic = levels.topic AND j.task = levels.task
                             AND j.priority < levels.priority
                         ORDER BY j.priority DESC LIMIT 1)
    FROM levels WHERE levels.priority IS NOT NULL
)
SELECT (SELECT number FROM tidewheel_jobs j
        WHERE j.state = 1 AND j.topic = levels.topic AND j.task = levels.task AND j.priority = levels.priority
        ORDER BY j.number LIMIT 1) AS number,
       topic, task, priority
FROM levels WHERE priority IS NOT NULL LIMIT ?

-- name: due_times
SELECT run_at, created_at FROM tidewheel_jobs WHERE number = ?

-- name: next_of_priority
SELECT number FROM tidewheel_jobs
WHERE state = 1 AND topic = ? AND task = ? AND priority = ? AND number > ?
ORDER BY number LIMIT 1

-- name: oldest_of_tenant
-- {index} is that of tenants if the tenant has few jobs, or that of pending jobs.
SELECT min(run_at) FROM tidewheel_jobs INDEXED BY {index}
WHERE {tenant} AND state < 2 AND blocked = 0 AND run_at <= ?
