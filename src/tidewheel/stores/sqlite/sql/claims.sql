-- name: next_deadlines
-- The next lease end, expiry and due time, to know what has to be done before jobs are chosen. Reads the first entry
-- of each index. The last column says whether any topic is paused or limited.
SELECT
    (SELECT leased_until FROM tidewheel_jobs WHERE state = 2 ORDER BY leased_until LIMIT 1),
    (SELECT expires_at FROM tidewheel_jobs
     WHERE expires_at IS NOT NULL AND state < 2 AND attempt = 0 ORDER BY expires_at LIMIT 1),
    (SELECT run_at FROM tidewheel_jobs WHERE state = 0 AND blocked = 0 ORDER BY run_at LIMIT 1),
    EXISTS (SELECT 1 FROM tidewheel_topics)

-- name: promote
-- Make delayed jobs that are due ready. With a LIMIT, so that a million jobs due at once are spread over many short
-- claims.
UPDATE tidewheel_jobs SET state = 1
WHERE number IN (
    SELECT number FROM tidewheel_jobs
    WHERE state = 0 AND blocked = 0 AND run_at <= ?
    ORDER BY run_at LIMIT ?
)
RETURNING tenant, topic, task

-- name: ready_of_lane
-- The first jobs of a lane, read from the index alone. The first column is the number of the lane: claims.py joins
-- many of these with UNION ALL. Without SKIP LOCKED, unlike PostgreSQL: SQLite has one writer at a time.
SELECT ? AS lane, -priority AS urgency, number FROM tidewheel_jobs
WHERE state = 1 AND topic = ? AND task = ?
ORDER BY priority DESC, number
LIMIT ?

-- name: chosen_jobs
-- All jobs as one JSON value: for each row that is fetched, a thread has to get the interpreter's lock again. claims.py
-- has the order of the fields. Long bodies are read by large_bodies.
SELECT json_group_array(json_array(
    chosen.key, hex(j.id), CASE WHEN j.suspect THEN max(j.timeouts, 1) ELSE 0 END, j.reserves, b.format,
    CASE WHEN length(b.payload) <= :small THEN hex(b.payload) END,
    j.topic, j.task, j.tenant, j.priority, j.attempt + 1, j.max_attempts, j.timeout_us, j.retry,
    coalesce(j.lease_us, :lease_us), j.number, j.created_at, j.run_at, j.key, j.correlation_id,
    j.user_id, j.service_id, j.headers, j.limit_key
))
FROM json_each(:numbers) AS chosen
CROSS JOIN tidewheel_jobs j ON j.number = chosen.value
CROSS JOIN tidewheel_bodies b ON b.number = j.number

-- name: large_bodies
SELECT number, payload FROM tidewheel_bodies WHERE number IN (SELECT value FROM json_each(?))

-- name: tasks_of_topic
-- Goes from one task of a topic to the next without reading the jobs between them. The last row is NULL.
WITH RECURSIVE tasks (task) AS (
    SELECT (SELECT task FROM tidewheel_jobs WHERE state = 1 AND topic = :topic ORDER BY task LIMIT 1)
    UNION ALL
    SELECT (SELECT task FROM tidewheel_jobs
            WHERE state = 1 AND topic = :topic AND task > tasks.task ORDER BY task LIMIT 1)
    FROM tasks WHERE tasks.task IS NOT NULL
)
SELECT json_group_array(task) FROM tasks WHERE task IS NOT NULL

-- name: lane_has_ready
SELECT EXISTS (SELECT 1 FROM tidewheel_jobs WHERE state = 1 AND topic = ? AND task = ?)

-- name: paused
SELECT topic, paused_until, limits FROM tidewheel_topics WHERE paused_until > ? OR limits IS NOT NULL

-- name: grant
-- Start the leases. A fence is used once in the whole store, so an earlier holder of the job can write nothing more.
UPDATE tidewheel_jobs
SET state = 2, attempt = attempt + 1, fence = :first_fence + grants.key,
    leased_until = :now + coalesce(lease_us, :lease_us), worker = :worker, claimed_at = :now,
    started_at = NULL, counts_if_lost = :counts_if_lost, reserves = reserves + 1
FROM json_each(:numbers) AS grants
WHERE tidewheel_jobs.number = grants.value

-- name: checkpoints
SELECT number, checkpoint FROM tidewheel_progress
WHERE number IN (SELECT value FROM json_each(?)) AND checkpoint IS NOT NULL
