-- name: columns
-- One list for every read; row_mapping.py knows the order. Not a statement by itself.
j.id, j.number, j.tenant, j.topic, j.task, j.state, j.priority, j.attempt, j.max_attempts, j.created_at,
j.run_at, j.claimed_at, j.started_at, j.finished_at, j.leased_until, j.fence, j.worker, j.timeout_us, j.key,
j.correlation_id, j.user_id, j.service_id, j.blocked, j.cancel_requested, j.error_summary, p.percent,
p.message, p.stage, p.updated_at, j.limit_key

-- name: parents
-- The jobs that one runs after, as parents_of in 10_dependencies.sql returns them. A job with dependents is never in a
-- batch.
ARRAY(SELECT ROW(
          d.parent,
          coalesce((SELECT o.state FROM {schema}.jobs o WHERE o.id = d.parent AND o.tenant = d.tenant),
                   (SELECT f.state FROM {schema}.finished_jobs f WHERE f.id = d.parent AND f.tenant = d.tenant)),
          d.unresolved AND j.state < 2, d.after_any
      )
      FROM {schema}.dependencies d WHERE d.child = j.id AND d.tenant = j.tenant ORDER BY d.position)

-- name: get
SELECT {columns}, j.format, coalesce(b.payload, j.payload), coalesce(b.raw, j.raw), j.result, p.checkpoint, j.retry,
       j.headers, j.lease_us, j.reserves, coalesce(j.timeouts, 0), coalesce(j.releases, 0), coalesce(j.buries, 0),
       coalesce(j.kicks, 0), coalesce(j.touches, 0),
       ARRAY(SELECT ROW(a.attempt, a.worker, a.started_at, a.ended_at, a.error)
             FROM {schema}.attempts a WHERE a.id = j.id ORDER BY a.ordinal),
       ARRAY(SELECT ROW(s.name, s.output, s.attempt, s.worker, s.started_at, s.finished_at)
             FROM {schema}.steps s WHERE s.id = j.id ORDER BY s.ordinal), {parents}
FROM {schema}.all_jobs j
LEFT JOIN {schema}.bodies b ON b.id = j.id AND b.tenant = j.tenant AND j.has_separate_body
LEFT JOIN {schema}.progress p ON p.id = j.id
WHERE j.id = $1::uuid AND ($2::text IS NULL OR j.tenant = $2) AND (j.batch_ids IS NULL OR j.batch_ids @> ARRAY[$1])

-- name: states
SELECT coalesce((SELECT j.state FROM {schema}.jobs j
                 WHERE j.id = n.id AND ($2::text IS NULL OR j.tenant = $2)),
                (SELECT f.state FROM {schema}.finished_jobs f
                 WHERE f.id = n.id AND ($2::text IS NULL OR f.tenant = $2)),
                CASE WHEN n.id IN (
                    SELECT u.id FROM {schema}.leased_batches p, unnest(p.ids) WITH ORDINALITY AS u(id, place)
                    WHERE p.batch > 0 AND (p.held_mask >> u.place::integer) & 1 = 1
                        AND ($2::text IS NULL OR p.tenant = $2)
                ) THEN 2 END)
FROM unnest($1::uuid[]) WITH ORDINALITY AS n(id, position)
ORDER BY n.position

-- name: job_ids
-- Batches are opened only for numbers that are nowhere else.
WITH found AS MATERIALIZED (
    SELECT n.position, n.number,
           coalesce((SELECT j.id FROM {schema}.jobs j WHERE j.number = n.number
           AND ($2::text IS NULL OR j.tenant = $2)),
                    (SELECT f.id FROM {schema}.finished_jobs f
                     WHERE f.number = n.number AND ($2::text IS NULL OR f.tenant = $2))) AS id
    FROM unnest($1::bigint[]) WITH ORDINALITY AS n(number, position)
), batched AS MATERIALIZED (
    SELECT p.number, p.id FROM {schema}.batched_jobs p
    WHERE EXISTS (SELECT FROM found WHERE id IS NULL)
        AND p.number = ANY (ARRAY(SELECT number FROM found WHERE id IS NULL))
        AND ($2::text IS NULL OR p.tenant = $2)
)
SELECT coalesce(f.id, (SELECT p.id FROM batched p WHERE p.number = f.number)) FROM found f ORDER BY f.position

-- name: begin_snapshot
-- The time that all else in this transaction goes by. With the first statement of the transaction come its settings:
-- whatever statistics say, rows are found through indexes and read in their order, and limits are planned with their
-- values.
SELECT {schema}.now_us($1::bigint), set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true), set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true), set_config('enable_sort', 'off', true),
       set_config('enable_incremental_sort', 'off', true), set_config('max_parallel_workers_per_gather', '0', true),
       set_config('plan_cache_mode', 'force_custom_plan', true), set_config('jit', 'off', true)

-- name: numbers
-- The jobs of a page. What is shown of them is asked for separately: a sort in the same statement, which the
-- settings make look infinitely expensive, would hide the price of everything beside it.
SELECT number{also} FROM ({sources}) AS found ORDER BY number DESC LIMIT $1::bigint - {offset} OFFSET {offset}

-- name: count
SELECT count(*) FROM (SELECT FROM ({sources}) AS found LIMIT $1) AS counted

-- name: count_from_counters
-- How many jobs, from counters: {total} sums up the states that are asked for.
SELECT {total}
FROM (
    SELECT tenant, topic, task, waiting, ready, running, completed, failed, cancelled FROM {schema}.job_counts
    UNION ALL
    SELECT tenant, topic, task, waiting, ready, running, completed, failed, cancelled FROM {schema}.counter_deltas
) AS j
WHERE ($1::text IS NULL OR j.topic = $1) AND ($2::text IS NULL OR j.task = $2) AND ($3::text IS NULL OR j.tenant = $3)

-- name: total
coalesce(sum({columns}) FILTER (WHERE {condition}), 0)::bigint

-- name: records
-- Each number is looked up, whatever the planner expects to find: as the first from it on, which is a question of
-- order, because for "= number" an index that has it only as its last column would do as well.
SELECT {columns}
FROM unnest($1::bigint[]) AS c(number)
    JOIN LATERAL (
        SELECT * FROM {schema}.single_row_jobs a WHERE a.number >= c.number ORDER BY a.number LIMIT 1
    ) AS j ON j.number = c.number
    LEFT JOIN LATERAL (SELECT * FROM {schema}.progress r WHERE r.id = j.id OFFSET 0) AS p ON true
UNION ALL
SELECT {columns}
FROM {schema}.batched_jobs j
    LEFT JOIN LATERAL (SELECT * FROM {schema}.progress r WHERE r.id = j.id OFFSET 0) AS p ON true
WHERE j.number = ANY ($1)

-- name: scan_texts
-- Which of these jobs may meet a condition about texts, what else is to be decided about them, and how large their
-- bodies are. Those do not leave the server. What a fingerprint is made of does.
SELECT j.number, {verdict}, ARRAY[{decided}]::boolean[], {size}, j.topic, j.task, j.error_summary
FROM {by_numbers} AS j {bodies}

-- name: size
-- Part of it, when the bodies are wanted later.
coalesce(octet_length(b.payload), octet_length(b.raw), octet_length(j.payload), octet_length(j.raw), 0)

-- name: with_bodies
-- For conditions that only Python can decide.
SELECT j.number, j.format, coalesce(b.payload, j.payload), coalesce(b.raw, j.raw)
FROM {by_numbers} AS j {bodies}

-- name: bodies
-- Part of those that read bodies; the next one is part of both.
LEFT JOIN LATERAL (
    SELECT * FROM {schema}.bodies o WHERE o.id = j.id AND o.tenant = j.tenant AND j.has_separate_body OFFSET 0
) AS b ON true

-- name: by_numbers
-- The jobs of these numbers. Each is looked up as in ``records``.
(
    SELECT a.*
    FROM unnest($1::bigint[]) AS c(number)
        JOIN LATERAL (
            SELECT {scanned_columns} FROM {schema}.single_row_jobs u WHERE u.number >= c.number ORDER BY u.number
            LIMIT 1
        ) AS a ON a.number = c.number
    UNION ALL
    SELECT {scanned_columns} FROM {schema}.batched_jobs u WHERE u.number = ANY ($1)
)

-- name: scanned_columns
u.id, u.number, u.tenant, u.topic, u.task, u.state, u.priority, u.attempt, u.max_attempts, u.created_at, u.run_at,
u.claimed_at, u.started_at, u.finished_at, u.leased_until, u.fence, u.worker, u.timeout_us, u.key, u.correlation_id,
u.user_id, u.service_id, u.limit_key, u.blocked, u.cancel_requested, u.error_summary, u.format, u.has_separate_body,
u.payload,
u.raw

-- name: in_payload
-- Part of a condition, as are the next two: where a text may be.
CASE WHEN j.has_separate_body THEN (
    SELECT coalesce(strpos(b.payload, {text}) > 0, position({bytes} IN b.raw) > 0)
    FROM {schema}.bodies b WHERE b.id = j.id AND b.tenant = j.tenant
) ELSE coalesce(strpos(j.payload, {text}) > 0, position({bytes} IN j.raw) > 0) END

-- name: in_summary
strpos(j.error_summary, {text}) > 0

-- name: in_attempts
-- Most jobs never had an error. Not EXISTS (…): that might read all attempts there are, to have them at hand.
CASE WHEN j.error_summary IS NOT NULL THEN (
    SELECT bool_or(strpos((e.error ->> 'code') || ': ' || (e.error ->> 'message'), {text}) > 0)
    FROM {schema}.attempts a, LATERAL (
        -- A NUL can be spelled in JSON, but not be part of a text.
        SELECT CASE WHEN strpos(a.error, '\u0000') = 0 THEN a.error ELSE
            regexp_replace(a.error, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g')
        END::json AS error OFFSET 0
    ) AS e
    WHERE a.id = j.id
) END

-- name: in_last_attempt
-- The part of the last error that its summary leaves out.
CASE WHEN length(j.error_summary) >= {length} THEN (
    SELECT strpos(w.whole, {text}) > 0 AND starts_with(w.whole, j.error_summary)
    FROM (
        SELECT a.error FROM {schema}.attempts a WHERE a.id = j.id ORDER BY a.ordinal DESC LIMIT 1
    ) AS a, LATERAL (
        SELECT CASE WHEN strpos(a.error, '\u0000') = 0 THEN a.error ELSE
            regexp_replace(a.error, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g')
        END::json AS error OFFSET 0
    ) AS e, LATERAL (
        SELECT (e.error ->> 'code') || ': ' || (e.error ->> 'message') AS whole OFFSET 0
    ) AS w
) END
