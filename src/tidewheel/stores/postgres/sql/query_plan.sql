-- Where the numbers of matching jobs come from, newest first. query_plan.py puts these together: $1 is how many are
-- wanted, {above} and {below} are the numbers between which to look, {and} further conditions. {also} is what a search
-- wants to know of each: a condition is read like a column, so that it is the reader who decides how long to go on.
--
-- Statistics may be old or wrong, and a list must not fall from a millisecond to a second with them. So each of
-- these can be read in order from one index only: rows are compared as whole rows, as that index keeps them.

-- name: by_number
SELECT j.number{also} FROM {schema}.{table} j
WHERE j.number > {above} AND j.number < {below} {and}
ORDER BY j.number DESC LIMIT $1::bigint

-- name: by_column
-- An index of (column, number). Some of them leave out rows without a value.
SELECT j.number{also} FROM {schema}.{table} j
WHERE j.{column} IS NOT NULL
    AND (j.{column}, j.number) > ({value}, {above}) AND (j.{column}, j.number) < ({value}, {below}) {and}
ORDER BY j.{column} DESC, j.number DESC LIMIT $1::bigint

-- name: by_lane
-- An index of (topic, task, number), lane by lane.
SELECT f.* FROM unnest({topics}, {tasks}) AS l(topic, task), LATERAL (
    SELECT j.number{also} FROM {schema}.{table} j
    WHERE (j.topic, j.task, j.number) > (l.topic, l.task, {above})
        AND (j.topic, j.task, j.number) < (l.topic, l.task, {below}) {and}
    ORDER BY j.topic DESC, j.task DESC, j.number DESC LIMIT $1::bigint
) AS f

-- name: by_level
-- Ready jobs are indexed by lane and priority, for claims.
SELECT f.* FROM unnest({topics}, {tasks}, {urgencies}) AS l(topic, task, urgency), LATERAL (
    SELECT j.number{also} FROM {schema}.jobs j
    WHERE j.state = 1 AND (j.topic, j.task, (-j.priority), j.number) > (l.topic, l.task, l.urgency, {above})
        AND (j.topic, j.task, (-j.priority), j.number) < (l.topic, l.task, l.urgency, {below}) {and}
    ORDER BY j.topic DESC, j.task DESC, (-j.priority) DESC, j.number DESC LIMIT $1::bigint
) AS f

-- name: running
-- Few, and mostly old: all of them are looked at. OFFSET 0 keeps the order by number out of the choice of an index.
SELECT j.number{also} FROM (
    SELECT * FROM {schema}.jobs WHERE state = 2 AND leased_until >= 0 OFFSET 0
) AS j
WHERE j.number > {above} AND j.number < {below} {and}
ORDER BY j.number DESC LIMIT $1::bigint

-- name: batched
-- Running, too. Those that are there now will be gone in a moment, so there is no order to find them by.
SELECT j.number{also} FROM (SELECT * FROM {schema}.batched_jobs OFFSET 0) AS j
WHERE j.number > {above} AND j.number < {below} {and}
ORDER BY j.number DESC LIMIT $1::bigint

-- name: levels
-- The priorities at which these lanes have ready jobs, without reading the jobs between.
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
SELECT topic, task, urgency FROM levels LIMIT $3::integer

-- name: lanes
-- The lanes there are, from counters: those of this topic, of this task, with jobs of this tenant, and, if asked, with
-- jobs that wait.
SELECT topic, task, sum(waiting + ready + running)::bigint AS unfinished,
       sum(completed + failed + cancelled)::bigint AS finished
FROM (
    SELECT tenant, topic, task, waiting, ready, running, completed, failed, cancelled FROM {schema}.job_counts
    UNION ALL
    SELECT tenant, topic, task, waiting, ready, running, completed, failed, cancelled FROM {schema}.counter_deltas
) AS changes
WHERE ($1::text IS NULL OR topic = $1) AND ($2::text IS NULL OR task = $2)
GROUP BY topic, task
HAVING ($3::text IS NULL OR bool_or(tenant = $3)) AND (NOT $4::boolean OR sum(waiting) <> 0)
LIMIT $5::integer

-- name: row_estimates
-- How many jobs there are, overall and of a tenant.
SELECT coalesce(sum(unfinished), 0)::bigint, coalesce(sum(running), 0)::bigint, coalesce(sum(finished), 0)::bigint,
       coalesce(sum(failed), 0)::bigint, coalesce(sum(cancelled), 0)::bigint,
       coalesce(sum(unfinished) FILTER (WHERE tenant = $1::text), 0)::bigint,
       coalesce(sum(running) FILTER (WHERE tenant = $1), 0)::bigint,
       coalesce(sum(finished) FILTER (WHERE tenant = $1), 0)::bigint,
       coalesce(sum(failed) FILTER (WHERE tenant = $1), 0)::bigint,
       coalesce(sum(cancelled) FILTER (WHERE tenant = $1), 0)::bigint
FROM (
    SELECT tenant, waiting + ready + running AS unfinished, running, completed + failed + cancelled AS finished,
           failed, cancelled
    FROM {schema}.job_counts
    UNION ALL
    SELECT tenant, waiting + ready + running, running, completed + failed + cancelled, failed, cancelled
    FROM {schema}.counter_deltas
) AS changes

-- name: samples
-- Some numbers between two, and when those jobs were created.
SELECT s.number, s.created_at
FROM generate_series(0, $3::integer) AS i, LATERAL (
    SELECT j.number, j.created_at FROM {schema}.{table} j
    WHERE j.number >= $1::bigint + (($2::bigint - $1) * i) / $3 ORDER BY j.number LIMIT 1
) AS s

-- name: first_and_last
(SELECT number, created_at FROM {schema}.{table} ORDER BY number LIMIT 1)
UNION ALL
(SELECT number, created_at FROM {schema}.{table} ORDER BY number DESC LIMIT 1)
