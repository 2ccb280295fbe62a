-- name: columns
-- Part of other statements: the columns of every query of jobs. row_mapping.py has their order.
j.id, j.number, j.tenant, j.topic, j.task, j.state, j.priority, j.attempt, j.max_attempts, j.created_at,
j.run_at, j.claimed_at, j.started_at, j.finished_at, j.leased_until, j.fence, j.worker, j.timeout_us, j.key,
j.correlation_id, j.user_id, j.service_id, j.blocked, j.cancel_requested, j.error_summary, p.percent,
p.message, p.stage, p.updated_at, j.limit_key

-- name: get
-- The last three columns say whether there are attempts, steps or parents. Most jobs have none, and the queries for
-- them are saved.
SELECT {columns}, b.format, b.payload, r.result, p.checkpoint, j.retry,
       j.headers, j.lease_us, j.reserves, j.timeouts, j.releases, j.buries, j.kicks, j.touches,
       EXISTS (SELECT 1 FROM tidewheel_attempts a WHERE a.number = j.number),
       EXISTS (SELECT 1 FROM tidewheel_steps s WHERE s.number = j.number),
       EXISTS (SELECT 1 FROM tidewheel_dependencies d WHERE d.child = j.number)
FROM tidewheel_jobs j
JOIN tidewheel_bodies b ON b.number = j.number
LEFT JOIN tidewheel_progress p ON p.number = j.number
LEFT JOIN tidewheel_results r ON r.number = j.number
WHERE {tenant} AND j.id = ?

-- name: attempts
SELECT attempt, worker, started_at, ended_at, error FROM tidewheel_attempts WHERE number = ? ORDER BY ordinal

-- name: steps
SELECT name, output, attempt, worker, started_at, finished_at FROM tidewheel_steps WHERE number = ? ORDER BY ordinal

-- name: state
SELECT state FROM tidewheel_jobs WHERE {tenant} AND id = ?

-- name: page
SELECT {columns}
FROM tidewheel_jobs j {hint} LEFT JOIN tidewheel_progress p ON p.number = j.number
WHERE {tenant} AND {conditions}
ORDER BY j.number DESC LIMIT ? OFFSET ?

-- name: scan
-- The condition is a column and not part of WHERE, so that every row comes back and the caller can stop at its time
-- limit, even if nothing matches.
WITH j AS (SELECT * FROM tidewheel_jobs j {hint} WHERE {tenant} AND {conditions})
SELECT j.number, j.created_at, {verdict} FROM j ORDER BY j.number DESC

-- name: scan_with_bodies
-- The same for conditions that only Python can decide: with the columns of which a fingerprint is made, and bodies if
-- the condition is about payloads. Rows are read one at a time and not kept.
WITH j AS (SELECT * FROM tidewheel_jobs j {hint} WHERE {tenant} AND {conditions})
SELECT j.number, j.created_at, {verdict}, j.topic, j.task, j.error_summary, {body}, {told}
FROM j {bodies}
ORDER BY j.number DESC

-- name: bodies
JOIN tidewheel_bodies b ON b.number = j.number

-- name: in_payload
-- Part of a condition, as are the next three: where a text is looked for.
instr((SELECT b.payload FROM tidewheel_bodies b WHERE b.number = j.number), {text}) > 0

-- name: in_summary
instr(coalesce(j.error_summary, ''), {text}) > 0

-- name: in_attempts
-- The first comparison is cheap, and most jobs never had an error.
j.error_summary IS NOT NULL AND EXISTS (
    SELECT 1 FROM tidewheel_attempts a
    WHERE a.number = j.number
        AND instr(json_extract(a.error, '$.code') || ': ' || json_extract(a.error, '$.message'), {text}) > 0
)

-- name: in_last_attempt
-- In the part of the last error that its summary leaves out. Compared as bytes, because text functions of SQLite
-- stop at a NUL.
length(CAST(j.error_summary AS BLOB)) >= {length} AND coalesce((
    SELECT instr(e.whole, {text}) > 0
        AND substr(CAST(e.whole AS BLOB), 1, length(CAST(j.error_summary AS BLOB))) = CAST(j.error_summary AS BLOB)
    FROM (
        SELECT json_extract(a.error, '$.code') || ': ' || json_extract(a.error, '$.message') AS whole
        FROM tidewheel_attempts a WHERE a.number = j.number ORDER BY a.ordinal DESC LIMIT 1
    ) AS e
), 0)

-- name: by_numbers
-- Jobs by number. A scan of the right tenant's jobs found these numbers.
SELECT {columns}
FROM json_each(?) AS n
CROSS JOIN tidewheel_jobs j ON j.number = n.value
LEFT JOIN tidewheel_progress p ON p.number = j.number

-- name: count
SELECT count(*) FROM (SELECT 1 FROM tidewheel_jobs j {hint} WHERE {tenant} AND {conditions} LIMIT ?)
