-- name: lane_counts
SELECT topic, task, state, sum(n) FROM tidewheel_job_counts WHERE {tenant} GROUP BY topic, task, state

-- name: unpromoted_by_lane
-- Delayed jobs that are due and not promoted yet, by lane. With a LIMIT: without workers there may be a million.
SELECT topic, task, count(*) FROM (
    SELECT topic, task FROM tidewheel_jobs INDEXED BY tidewheel_jobs_waiting
    WHERE {tenant} AND state = 0 AND blocked = 0 AND run_at <= ? LIMIT ?
)
GROUP BY topic, task

-- name: lane_events
SELECT topic, task, sum(enqueued), sum(completed), sum(failed), sum(cancelled), sum(retried), sum(runs), sum(run_us),
       sum(waits), sum(wait_us)
FROM tidewheel_lane_minute_metrics WHERE minute BETWEEN ? AND ? GROUP BY topic, task

-- name: lane_minutes
-- For these lanes. The minutes are read in one pass, and the lane of each row is looked up in the list.
SELECT minute, topic, task, enqueued, completed, failed, cancelled, retried FROM tidewheel_lane_minute_metrics
WHERE minute BETWEEN ? AND ? AND (topic, task) IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?)
)

-- name: durations
-- The newest completed jobs, which are close together in the file, in the order of the index.
SELECT topic, task, finished_at - started_at, started_at - run_at FROM (
    SELECT * FROM tidewheel_jobs INDEXED BY tidewheel_jobs_completed
    WHERE {tenant} AND state = 3 ORDER BY number DESC LIMIT ?
)
WHERE started_at IS NOT NULL

-- name: durations_of_tenant
-- The newest jobs of the tenant in any state, because its completed jobs may be far apart among those of others.
-- {index} is always that of tenants.
SELECT topic, task, finished_at - started_at, started_at - run_at FROM (
    SELECT * FROM tidewheel_jobs INDEXED BY {index}
    WHERE {tenant} ORDER BY number DESC LIMIT ?
)
WHERE state = 3 AND started_at IS NOT NULL

-- name: failures
-- Counts equal errors in the same part of the window. Python groups similar ones.
WITH recent AS (
    SELECT j.topic, j.task, j.error_summary, j.finished_at, j.number
    FROM tidewheel_jobs j {hint} WHERE {tenant} AND {conditions} ORDER BY j.number DESC LIMIT ?
), looked_at AS (
    -- The query reads one job more than is used, to know whether there are more.
    SELECT count(*) > ? AS more, min(number) AS last FROM recent
)
SELECT topic, task, coalesce(error_summary, ''),
       CASE WHEN finished_at >= ? THEN min((finished_at - ?) * ? / ?, ?) END AS part,
       count(*), min(finished_at), max(finished_at), max(number), more
FROM recent CROSS JOIN looked_at
WHERE NOT more OR number > last
GROUP BY topic, task, error_summary, part

-- name: with_numbers
-- Part of failures: the condition for jobs that a search has found.
j.number IN (SELECT value FROM json_each(?))

-- name: ids
-- Ids by number. The jobs are known to belong to the right tenant.
SELECT number, id FROM tidewheel_jobs WHERE number IN (SELECT value FROM json_each(?))

-- name: duplicate_keys
SELECT g.newest, g.count, n.tenant, n.topic, n.task, n.key, n.id, o.id
FROM (
    SELECT max(number) AS newest, min(number) AS oldest, count(*) AS count
    FROM (SELECT number, tenant, topic, task, key FROM tidewheel_jobs WHERE {tenant} ORDER BY number DESC LIMIT ?)
    WHERE key IS NOT NULL
    GROUP BY tenant, CASE task WHEN '' THEN topic ELSE task END, key
    HAVING count(*) > 1
) AS g
JOIN tidewheel_jobs n ON n.number = g.newest
JOIN tidewheel_jobs o ON o.number = g.oldest

-- name: duplicate_payloads
-- length() does not read the body.
SELECT g.newest, g.count, n.tenant, n.topic, n.task, NULL, n.id, o.id
FROM (
    SELECT max(j.number) AS newest, min(j.number) AS oldest, count(*) AS count
    FROM (
        SELECT number, tenant, topic, task FROM tidewheel_jobs INDEXED BY tidewheel_jobs_pending
        WHERE {tenant} AND state < 2 ORDER BY number DESC LIMIT ?
    ) AS j
    JOIN tidewheel_bodies b ON b.number = j.number
    WHERE length(b.payload) <= ?
    GROUP BY j.tenant, j.topic, j.task, b.format, b.payload
    HAVING count(*) > 1
) AS g
JOIN tidewheel_jobs n ON n.number = g.newest
JOIN tidewheel_jobs o ON o.number = g.oldest

-- name: duplicate_payloads_of_tenant
SELECT g.newest, g.count, n.tenant, n.topic, n.task, NULL, n.id, o.id
FROM (
    SELECT max(j.number) AS newest, min(j.number) AS oldest, count(*) AS count
    FROM (
        SELECT number, tenant, topic, task, state FROM tidewheel_jobs INDEXED BY {index}
        WHERE {tenant} ORDER BY number DESC LIMIT ?
    ) AS j
    JOIN tidewheel_bodies b ON b.number = j.number
    WHERE j.state < 2 AND length(b.payload) <= ?
    GROUP BY j.tenant, j.topic, j.task, b.format, b.payload
    HAVING count(*) > 1
) AS g
JOIN tidewheel_jobs n ON n.number = g.newest
JOIN tidewheel_jobs o ON o.number = g.oldest

-- name: longest_running
SELECT {columns}
FROM tidewheel_jobs j INDEXED BY tidewheel_jobs_leased LEFT JOIN tidewheel_progress p ON p.number = j.number
WHERE {tenant} AND j.state = 2
ORDER BY j.claimed_at, j.number LIMIT ?
