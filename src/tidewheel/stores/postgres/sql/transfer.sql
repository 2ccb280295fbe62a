-- name: newest
-- The numbers of a page, and how large the jobs are with all that was saved of them. Bodies are not read for it.
SELECT number, size
    + coalesce((SELECT octet_length(p.checkpoint) FROM {schema}.progress p WHERE p.id = page.id), 0)
    + coalesce((SELECT sum(octet_length(s.output)) FROM {schema}.steps s WHERE s.id = page.id), 0)
    + coalesce((SELECT sum(octet_length(a.error)) FROM {schema}.attempts a WHERE a.id = page.id), 0)
FROM (
    SELECT number, id, size FROM (
        (SELECT j.number, j.id, {size} AS size FROM {schema}.jobs j {large}
         WHERE j.number < $1 ORDER BY j.number DESC LIMIT $2)
        UNION ALL
        (SELECT j.number, j.id, {size} + coalesce(octet_length(j.result), 0) FROM {schema}.finished_jobs j {large}
         WHERE j.number < $1 ORDER BY j.number DESC LIMIT $2)
        UNION ALL
        (SELECT j.number, j.id, {size} FROM {schema}.batched_jobs j {large}
         WHERE j.number < $1 ORDER BY j.number DESC LIMIT $2)
    ) AS found
    ORDER BY number DESC LIMIT $2
) AS page
ORDER BY number DESC

-- name: size
coalesce(octet_length(b.payload), octet_length(b.raw), octet_length(j.payload), octet_length(j.raw), 0)

-- name: large
-- Separate bodies.
LEFT JOIN LATERAL (
    SELECT * FROM {schema}.bodies o WHERE o.id = j.id AND o.tenant = j.tenant AND j.has_separate_body OFFSET 0
) AS b ON true

-- name: export
-- As ``get`` reads it (row_mapping.py knows the order), and then columns that are never shown. From the last number of
-- the page to the first.
SELECT {columns}, j.format, coalesce(b.payload, j.payload), coalesce(b.raw, j.raw), j.result, p.checkpoint, j.retry,
       j.headers, j.lease_us, j.reserves, coalesce(j.timeouts, 0), coalesce(j.releases, 0), coalesce(j.buries, 0),
       coalesce(j.kicks, 0), coalesce(j.touches, 0),
       ARRAY(SELECT ROW(a.attempt, a.worker, a.started_at, a.ended_at, a.error)
             FROM {schema}.attempts a WHERE a.id = j.id ORDER BY a.ordinal),
       ARRAY(SELECT ROW(s.name, s.output, s.attempt, s.worker, s.started_at, s.finished_at)
             FROM {schema}.steps s WHERE s.id = j.id ORDER BY s.ordinal), {parents},
       j.key_until, j.expires_at, j.retention_us, j.retention_failed_us, j.suspect, j.counts_if_lost, j.buried
FROM (
    SELECT {shared_columns}, finished_at, NULL::bigint AS leased_until, NULL::bigint AS expires_at, 0 AS blocked,
           false AS cancel_requested, false AS suspect, false AS counts_if_lost, buried, result
    FROM {schema}.finished_jobs WHERE number BETWEEN $1 AND $2
    UNION ALL
    SELECT {shared_columns}, NULL, leased_until, expires_at, blocked, cancel_requested, suspect, counts_if_lost, false,
           NULL
    FROM {schema}.jobs WHERE number BETWEEN $1 AND $2
    UNION ALL
    SELECT {batched_columns}, NULL, p.leased_until, r.expires_at, r.blocked, r.cancel_requested, r.suspect,
           cardinality(p.ids) = 1, false, NULL
    FROM {schema}.leased_batches p, unnest(p.jobs) WITH ORDINALITY AS r
    WHERE p.batch > 0 AND (p.held_mask >> r.ordinality::integer) & 1 = 1 AND r.number BETWEEN $1 AND $2
) AS j
{large}
LEFT JOIN LATERAL (SELECT * FROM {schema}.progress r WHERE r.id = j.id OFFSET 0) AS p ON true
ORDER BY j.number DESC

-- name: shared_columns
-- Columns that jobs and finished_jobs have in common.
id, number, priority, run_at, created_at, fence, claimed_at, started_at, timeout_us, lease_us, retention_us,
retention_failed_us, attempt, max_attempts, reserves, timeouts, releases, buries, kicks, touches, state, key_until,
format, has_separate_body, topic, task, tenant, worker, retry, key, correlation_id, user_id, service_id, limit_key,
headers,
error_summary, payload, raw

-- name: batched_columns
-- The same of a job in a batch, where it is as it was before it was claimed.
r.id, r.number, r.priority, r.run_at, r.created_at, p.batch * 64 + r.ordinality, p.claimed_at, NULL::bigint,
r.timeout_us, r.lease_us, r.retention_us, r.retention_failed_us, r.attempt + 1, r.max_attempts, r.reserves + 1,
r.timeouts, r.releases, r.buries, r.kicks, r.touches, 2::smallint, r.key_until, r.format, r.has_separate_body, r.topic,
r.task,
r.tenant, p.worker, r.retry, r.key, r.correlation_id, r.user_id, r.service_id, r.limit_key, r.headers, r.error_summary,
r.payload,
r.raw

-- name: import_lock
-- Without it, two imports of the same jobs would each find that they do not exist.
SELECT pg_advisory_xact_lock(hashtextextended('tidewheel.import_jobs.' || $1::text, 0))

-- name: existing
-- The jobs that have one of these ids or numbers.
SELECT id, number FROM {schema}.single_row_jobs WHERE id = ANY ($1::uuid[])
UNION
SELECT id, number FROM {schema}.single_row_jobs WHERE number = ANY ($2::bigint[])
UNION
SELECT id, number FROM {schema}.batched_jobs WHERE id = ANY ($1) OR number = ANY ($2)

-- name: key_holders
SELECT k.tenant, k.scope, k.key, k.id
FROM unnest($1::text[], $2::text[], $3::text[]) AS n(tenant, scope, key)
JOIN {schema}.job_keys k ON k.tenant = n.tenant AND k.scope = n.scope AND k.key = n.key

-- name: sequence_gaps
-- How far each sequence is behind a number and a fence.
SELECT greatest($1::bigint - n.last_value + (NOT n.is_called)::integer, 0),
       greatest(($2::bigint + 63) / 64 - f.last_value + (NOT f.is_called)::integer, 0)
FROM {schema}.numbers n, {schema}.fences f

-- name: raise_numbers
-- Step by step: setval takes a right that workers do not have, and could set the sequence back while another session
-- uses it.
SELECT count(nextval('{schema}.numbers')) FROM generate_series(1, $1::bigint)

-- name: raise_fences
SELECT count(nextval('{schema}.fences')) FROM generate_series(1, $1::bigint)

-- name: insert_rows
-- Rows as JSON, by the names of the columns. What is not said is NULL, so all that has to be is said.
INSERT INTO {schema}.{table} ({names}) SELECT {names} FROM json_populate_recordset(NULL::{schema}.{table}, $1::json)
