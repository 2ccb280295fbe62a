-- What operators ask. Bounded by the number of jobs that are looked at, or taken from counters.

-- name: begin_snapshot
-- The time that all else in this transaction goes by, and settings for the transaction: limits are planned with their
-- values, and what statistics say makes no query read a whole table.
SELECT {schema}.now_us($1::bigint), set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true), set_config('max_parallel_workers_per_gather', '0', true),
       set_config('plan_cache_mode', 'force_custom_plan', true), set_config('jit', 'off', true)

-- name: lane_counts
SELECT o_topics, o_tasks, o_waiting, o_ready, o_running, o_completed, o_failed, o_cancelled
FROM {schema}.lanes($1::bigint, $2::text)

-- name: unpromoted_by_lane
-- Delayed jobs that are due and not promoted yet, by lane. Not all of them: without workers there may be a million.
SELECT topic, task, count(*) FROM (
    SELECT j.topic, j.task FROM {schema}.jobs j
    WHERE j.state = 0 AND j.blocked = 0 AND j.run_at <= $1::bigint AND ($2::text IS NULL OR j.tenant = $2)
    ORDER BY j.run_at LIMIT $3::bigint
) AS late
GROUP BY topic, task

-- name: changes
-- What was counted, and what was appended since. Not a statement by itself. Minutes later than now were counted
-- before the clock was set back.
SELECT minute, topic, task, enqueued, completed, failed, cancelled, retried, runs, run_us, waits, wait_us
FROM {schema}.lane_minute_metrics WHERE minute BETWEEN $1::bigint AND $2::bigint
UNION ALL
SELECT minute, topic, task, sum(enqueued_events), sum(completed_events), sum(failed_events), sum(cancelled_events),
       sum(retried_events),
       coalesce(sum(cardinality(run_buckets)), 0), coalesce(sum(run_us), 0)::bigint,
       coalesce(sum(cardinality(wait_buckets)), 0), coalesce(sum(wait_us), 0)::bigint
FROM {schema}.counter_deltas
WHERE minute BETWEEN $1 AND $2 AND (enqueued_events > 0 OR completed_events > 0 OR failed_events > 0 OR cancelled_events > 0
    OR retried_events > 0
                        OR wait_buckets IS NOT NULL)
GROUP BY minute, topic, task

-- name: lane_events
SELECT topic, task, sum(enqueued)::bigint, sum(completed)::bigint, sum(failed)::bigint, sum(cancelled)::bigint,
       sum(retried)::bigint, sum(runs)::bigint, sum(run_us)::bigint, sum(waits)::bigint, sum(wait_us)::bigint
FROM ({changes}) AS c
GROUP BY topic, task

-- name: lane_minutes
-- Of these lanes. One row each, with arrays: they cost the driver a fraction of what rows do.
SELECT topic, task, array_agg(minute), array_agg(enqueued), array_agg(completed), array_agg(failed),
       array_agg(cancelled), array_agg(retried)
FROM (
    SELECT c.topic, c.task, c.minute, sum(enqueued)::bigint AS enqueued, sum(completed)::bigint AS completed,
           sum(failed)::bigint AS failed, sum(cancelled)::bigint AS cancelled, sum(retried)::bigint AS retried
    FROM ({changes}) AS c JOIN unnest($3::text[], $4::text[]) AS l(topic, task) USING (topic, task)
    GROUP BY c.topic, c.task, c.minute
) AS m
GROUP BY topic, task

-- name: newest
-- The newest jobs, except those in batches: they have no keys, and neither wait nor are finished. Not a statement by
-- itself.
SELECT number, id, tenant, topic, task, key FROM (
    (SELECT j.number, j.id, j.tenant, j.topic, j.task, j.key FROM {schema}.jobs j
     WHERE $1::text IS NULL OR j.tenant = $1 ORDER BY j.number DESC LIMIT $2::bigint)
    UNION ALL
    (SELECT j.number, j.id, j.tenant, j.topic, j.task, j.key FROM {schema}.finished_jobs j
     WHERE $1 IS NULL OR j.tenant = $1 ORDER BY j.number DESC LIMIT $2)
) AS n
ORDER BY number DESC LIMIT $2

-- name: newest_of_tenant
-- The same for one whose jobs are between those of others: rows are compared as the index of tenants keeps them.
SELECT number, id, tenant, topic, task, key FROM (
    (SELECT j.number, j.id, j.tenant, j.topic, j.task, j.key FROM {schema}.jobs j
     WHERE j.tenant <> 'root' AND (j.tenant, j.number) > ($1::text, 0::bigint)
         AND (j.tenant, j.number) < ($1, 9223372036854775807)
     ORDER BY j.tenant DESC, j.number DESC LIMIT $2::bigint)
    UNION ALL
    (SELECT j.number, j.id, j.tenant, j.topic, j.task, j.key FROM {schema}.finished_jobs j
     WHERE j.tenant <> 'root' AND (j.tenant, j.number) > ($1, 0::bigint)
         AND (j.tenant, j.number) < ($1, 9223372036854775807)
     ORDER BY j.tenant DESC, j.number DESC LIMIT $2)
) AS n
ORDER BY number DESC LIMIT $2

-- name: durations
SELECT topic, task, array_agg(finished_at - started_at), array_agg(started_at - run_at)
FROM (
    SELECT f.topic, f.task, f.started_at, f.finished_at, f.run_at FROM {schema}.finished_jobs f
    WHERE f.state = 3 AND ($1::text IS NULL OR f.tenant = $1) ORDER BY f.number DESC LIMIT $2::bigint
) AS completed
WHERE started_at IS NOT NULL
GROUP BY topic, task

-- name: durations_of_tenant
SELECT f.topic, f.task, array_agg(f.finished_at - f.started_at), array_agg(f.started_at - f.run_at)
FROM ({newest_of_tenant}) AS n JOIN {schema}.finished_jobs f ON f.id = n.id
WHERE f.state = 3 AND f.started_at IS NOT NULL
GROUP BY f.topic, f.task

-- name: failures
-- The same error in the same part of the window is counted here, similar ones elsewhere. The numbers are in one
-- scan of the index of failed jobs, which takes a third of the time that looking up each of them does.
SELECT f.topic, f.task, coalesce(f.error_summary, ''),
       CASE WHEN f.finished_at >= $2::bigint THEN least((f.finished_at - $2) * $3::bigint / $4::bigint, $3 - 1) END,
       count(*), min(f.finished_at), max(f.finished_at), max(f.number)
FROM {schema}.finished_jobs f
WHERE f.state = 4 AND f.state > 3 AND f.number = ANY ($1::bigint[])
GROUP BY 1, 2, 3, 4

-- name: ids
-- Ids of failed jobs whose tenant was checked before.
SELECT f.number, f.id
FROM unnest($1::bigint[]) AS c(number)
    JOIN LATERAL (
        SELECT * FROM {schema}.finished_jobs a WHERE a.number >= c.number ORDER BY a.number LIMIT 1
    ) AS f ON f.number = c.number

-- name: duplicate_keys
SELECT max(number), count(*), tenant, (array_agg(topic ORDER BY number DESC))[1],
       (array_agg(task ORDER BY number DESC))[1], key, (array_agg(id ORDER BY number DESC))[1],
       (array_agg(id ORDER BY number))[1]
FROM ({newest}) AS n
WHERE key IS NOT NULL
GROUP BY tenant, CASE task WHEN '' THEN topic ELSE task END, key
HAVING count(*) > 1

-- name: duplicate_payloads
-- Only bodies that are in the row: those are the ones that are short enough.
SELECT max(number), count(*), tenant, topic, task, NULL, (array_agg(id ORDER BY number DESC))[1],
       (array_agg(id ORDER BY number))[1]
FROM (
    SELECT j.number, j.id, j.tenant, j.topic, j.task, j.format, j.has_separate_body, j.payload,
           j.raw FROM {schema}.jobs j
    WHERE j.state < 2 AND ($1::text IS NULL OR j.tenant = $1) ORDER BY j.number DESC LIMIT $2::bigint
) AS pending
WHERE NOT has_separate_body AND octet_length(payload) <= $3::integer OR octet_length(raw) <= $3
GROUP BY tenant, topic, task, format, payload, raw
HAVING count(*) > 1

-- name: duplicate_payloads_of_tenant
SELECT max(j.number), count(*), j.tenant, j.topic, j.task, NULL, (array_agg(j.id ORDER BY j.number DESC))[1],
       (array_agg(j.id ORDER BY j.number))[1]
FROM ({newest_of_tenant}) AS n JOIN {schema}.jobs j ON j.id = n.id
WHERE j.state < 2 AND NOT j.has_separate_body
    AND (octet_length(j.payload) <= $3::integer OR octet_length(j.raw) <= $3)
GROUP BY j.tenant, j.topic, j.task, j.format, j.payload, j.raw
HAVING count(*) > 1

-- name: longest_running
-- No finished job is read: the view says that they have no lease.
SELECT {columns}
FROM (
    SELECT * FROM {schema}.all_jobs r
    WHERE r.state = 2 AND r.leased_until >= 0 AND ($1::text IS NULL OR r.tenant = $1)
    ORDER BY r.claimed_at, r.number LIMIT $2::bigint
) AS j
LEFT JOIN LATERAL (SELECT * FROM {schema}.progress o WHERE o.id = j.id OFFSET 0) AS p ON true
ORDER BY j.claimed_at, j.number
