-- name: moment
-- The time everything else is told by. With the first statement of the transaction come its settings: whatever
-- statistics say, the tables of jobs are read through their indexes.
SELECT {schema}.now_us($1::bigint), set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true),
       set_config('enable_incremental_sort', 'off', true), set_config('max_parallel_workers_per_gather', '0', true),
       set_config('plan_cache_mode', 'force_custom_plan', true), set_config('jit', 'off', true)

-- name: counts
-- Counters, and what has been appended to them since they were last added up.
SELECT topic, sum(waiting)::bigint, sum(waiting + ready)::bigint, sum(running)::bigint, sum(completed)::bigint,
       sum(failed)::bigint, sum(cancelled)::bigint
FROM (
    SELECT tenant, topic, waiting, ready, running, completed, failed, cancelled FROM {schema}.counts
    UNION ALL
    SELECT tenant, topic, waiting, ready, running, completed, failed, cancelled FROM {schema}.tally
) AS changes
WHERE $1::text IS NULL OR tenant = $1
GROUP BY topic

-- name: pauses
SELECT topic, paused_until FROM {schema}.topics WHERE paused_until > $1::bigint

-- name: minutes
-- Events by minute, durations (5, 6) over the whole time; for those the minute is NULL. Each source is summed up by
-- itself: there may be a million durations that were appended and not folded yet.
SELECT minute, metric, 0 AS bucket, sum(n)::bigint AS n, 0::bigint AS total
FROM (
    SELECT minute, metric, n FROM {schema}.minutes WHERE minute >= $1::bigint AND metric < 5
    UNION ALL
    SELECT t.minute, h.metric, h.n
    FROM {schema}.tally t, LATERAL (
        VALUES (0, t.did_enqueue), (1, t.did_complete), (2, t.did_fail), (3, t.did_cancel), (4, t.did_retry)
    ) AS h(metric, n)
    WHERE t.minute >= $1 AND h.n > 0
) AS events
GROUP BY minute, metric
UNION ALL
SELECT NULL, metric, bucket, sum(n)::bigint, sum(total)::bigint
FROM {schema}.minutes WHERE minute >= $1 AND metric >= 5 GROUP BY metric, bucket
UNION ALL
SELECT NULL, 5, 0, 0, coalesce(sum(run_total), 0)::bigint FROM {schema}.tally WHERE minute >= $1
UNION ALL
SELECT NULL, 6, 0, 0, coalesce(sum(wait_total), 0)::bigint FROM {schema}.tally WHERE minute >= $1
UNION ALL
SELECT NULL, 5, b, count(*), 0 FROM {schema}.tally, unnest(run_buckets) AS b WHERE minute >= $1 GROUP BY b
UNION ALL
SELECT NULL, 6, b, count(*), 0 FROM {schema}.tally, unnest(wait_buckets) AS b WHERE minute >= $1 GROUP BY b

-- name: not_delayed
-- Of the waiting jobs: those nobody has promoted yet, because no worker has claimed since they became due, and
-- those that wait for other jobs. Orders and OFFSET 0 name the index: other conditions would lead to others.
SELECT (SELECT count(*) FROM (SELECT tenant FROM {schema}.jobs
                              WHERE state = 0 AND blocked = 0 AND run_at <= $1::bigint
                              ORDER BY run_at OFFSET 0) AS due
        WHERE $2::text IS NULL OR tenant = $2)
     + (SELECT count(*) FROM (SELECT tenant FROM {schema}.jobs WHERE blocked > 0 AND state = 0
                              ORDER BY number OFFSET 0) AS behind
        WHERE $2 IS NULL OR tenant = $2)

-- name: pending_of_tenant
-- How many are delayed, and since when the first that is due has been. For tenants with few jobs.
SELECT count(*) FILTER (WHERE state = 0 AND run_at > $1::bigint), min(run_at) FILTER (WHERE run_at <= $1)
FROM {schema}.jobs
WHERE tenant = $2::text AND tenant <> 'root' AND state < 2 AND blocked = 0

-- name: oldest_delayed
-- The first that became due among jobs that had been delayed: not promoted yet, or promoted.
SELECT least(
    (SELECT run_at FROM {schema}.jobs
     WHERE state = 0 AND blocked = 0 AND run_at <= $1::bigint AND ($2::text IS NULL OR tenant = $2)
     ORDER BY run_at LIMIT 1),
    (SELECT run_at FROM {schema}.jobs
     WHERE state = 1 AND run_at > created_at AND ($2::text IS NULL OR tenant = $2)
     ORDER BY run_at LIMIT 1)
)

-- name: oldest_prompt
-- Jobs that were never delayed are due in the order of their numbers, so the first one of each lane and priority
-- has waited longest. From one priority to the next without reading what is between.
WITH RECURSIVE levels (topic, task, urgency) AS (
    SELECT l.topic, l.task, h.urgency
    FROM unnest($1::text[], $2::text[]) AS l(topic, task), LATERAL (
        SELECT -j.priority AS urgency FROM {schema}.jobs j
        WHERE j.state = 1 AND j.topic = l.topic AND j.task = l.task ORDER BY (-j.priority) LIMIT 1
    ) AS h
    UNION ALL
    SELECT v.topic, v.task, h.urgency
    FROM levels v, LATERAL (
        SELECT -j.priority AS urgency FROM {schema}.jobs j
        WHERE j.state = 1 AND j.topic = v.topic AND j.task = v.task AND (-j.priority) > v.urgency
        ORDER BY (-j.priority) LIMIT 1
    ) AS h
)
SELECT min(o.run_at)
FROM (SELECT topic, task, urgency FROM levels LIMIT $3::integer) AS v, LATERAL (
    SELECT h.run_at
    FROM (
        SELECT j.run_at, j.created_at, j.tenant FROM {schema}.jobs j
        WHERE j.state = 1 AND j.topic = v.topic AND j.task = v.task AND (-j.priority) = v.urgency
        ORDER BY j.number LIMIT $4::bigint
    ) AS h
    WHERE h.run_at <= h.created_at AND ($5::text IS NULL OR h.tenant = $5) LIMIT 1
) AS o

-- name: lanes_with_ready
SELECT topic, task FROM (
    SELECT tenant, topic, task, ready FROM {schema}.counts
    UNION ALL
    SELECT tenant, topic, task, ready FROM {schema}.tally
) AS changes
WHERE $1::text IS NULL OR tenant = $1
GROUP BY topic, task HAVING sum(ready) > 0
