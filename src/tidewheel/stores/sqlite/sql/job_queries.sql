-- name: columns
-- One list for every read; recording.py knows the order. Not a statement by itself.
j.id, j.number, j.tenant, j.topic, j.task, j.state, j.priority, j.attempt, j.max_attempts, j.created_at,
j.run_at, j.claimed_at, j.started_at, j.finished_at, j.leased_until, j.fence, j.worker, j.timeout_us, j.key,
j.correlation_id, j.user_id, j.service_id, j.blocked, j.cancel_requested, j.error_summary, p.percent,
p.message, p.stage, p.updated_at, j.limit_key

-- name: get
-- Most jobs have neither attempts that errored nor steps: then nobody needs to look for them.
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
-- What becomes of a condition is read like a column, not left to WHERE: so the reader gets to see the time, however
-- long nothing matches.
WITH j AS (SELECT * FROM tidewheel_jobs j {hint} WHERE {tenant} AND {conditions})
SELECT j.number, j.created_at, {verdict} FROM j ORDER BY j.number DESC

-- name: scan_with_bodies
-- The same with what else is to be told, for conditions that only Python can decide: what a fingerprint is made of, and
-- bodies where they are asked about. Rows are read one at a time and dropped.
WITH j AS (SELECT * FROM tidewheel_jobs j {hint} WHERE {tenant} AND {conditions})
SELECT j.number, j.created_at, {verdict}, j.topic, j.task, j.error_summary, {body}, {told}
FROM j {bodies}
ORDER BY j.number DESC

-- name: bodies
JOIN tidewheel_bodies b ON b.number = j.number

-- name: in_payload
-- Part of a condition, as are the next two: where a text may be.
instr((SELECT b.payload FROM tidewheel_bodies b WHERE b.number = j.number), {text}) > 0

-- name: in_summary
instr(coalesce(j.error_summary, ''), {text}) > 0

-- name: in_attempts
-- Most jobs never had an error.
j.error_summary IS NOT NULL AND EXISTS (
    SELECT 1 FROM tidewheel_attempts a
    WHERE a.number = j.number
        AND instr(json_extract(a.error, '$.code') || ': ' || json_extract(a.error, '$.message'), {text}) > 0
)

-- name: in_last_attempt
-- The part of the last error that its summary leaves out. As bytes: text functions of SQLite stop at a NUL.
length(CAST(j.error_summary AS BLOB)) >= {length} AND coalesce((
    SELECT instr(e.whole, {text}) > 0
        AND substr(CAST(e.whole AS BLOB), 1, length(CAST(j.error_summary AS BLOB))) = CAST(j.error_summary AS BLOB)
    FROM (
        SELECT json_extract(a.error, '$.code') || ': ' || json_extract(a.error, '$.message') AS whole
        FROM tidewheel_attempts a WHERE a.number = j.number ORDER BY a.ordinal DESC LIMIT 1
    ) AS e
), 0)

-- name: by_numbers
-- Jobs by the numbers that were found, among those of the right tenant.
SELECT {columns}
FROM json_each(?) AS n
CROSS JOIN tidewheel_jobs j ON j.number = n.value
LEFT JOIN tidewheel_progress p ON p.number = j.number

-- name: count
SELECT count(*) FROM (SELECT 1 FROM tidewheel_jobs j {hint} WHERE {tenant} AND {conditions} LIMIT ?)
