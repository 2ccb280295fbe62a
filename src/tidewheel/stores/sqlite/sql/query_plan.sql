-- name: row_estimates
-- How many jobs a topic has, and how many each stored state has, for all tenants together.
SELECT coalesce(sum(n) FILTER (WHERE topic = ?), 0), coalesce(sum(n) FILTER (WHERE state < 2), 0),
       coalesce(sum(n) FILTER (WHERE state = 0), 0), coalesce(sum(n) FILTER (WHERE state = 3), 0),
       coalesce(sum(n) FILTER (WHERE state = 4), 0), coalesce(sum(n) FILTER (WHERE state = 5), 0)
FROM tidewheel_job_counts

-- name: row_estimate_of_tenant
SELECT coalesce(sum(n), 0) FROM tidewheel_job_counts WHERE {tenant}

-- name: retrying
-- How many, up to a limit. The index has no other jobs.
SELECT count(*) FROM (
    SELECT 1 FROM tidewheel_jobs INDEXED BY tidewheel_jobs_retrying WHERE attempt > 0 AND state < 2 LIMIT ?
)

-- name: blocked
SELECT count(*) FROM (SELECT 1 FROM tidewheel_jobs INDEXED BY tidewheel_jobs_blocked WHERE blocked > 0 LIMIT ?)

-- name: topics_of_task
SELECT DISTINCT topic FROM tidewheel_job_counts WHERE task = ?

-- name: count_from_counters
-- A row of counters has the same column names as a job, so the same conditions apply.
SELECT coalesce(sum(j.n), 0) FROM tidewheel_job_counts j WHERE {tenant} AND {conditions}

-- name: first_and_last
SELECT * FROM (SELECT number, created_at FROM tidewheel_jobs ORDER BY number LIMIT 1)
UNION ALL
SELECT * FROM (SELECT number, created_at FROM tidewheel_jobs ORDER BY number DESC LIMIT 1)

-- name: sample
SELECT number, created_at FROM tidewheel_jobs WHERE number >= ? ORDER BY number LIMIT 1
