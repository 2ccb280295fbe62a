-- name: limits
SELECT topic, limits FROM tidewheel_topics WHERE limits IS NOT NULL ORDER BY topic LIMIT ?

-- name: limited_unpaused_topics
-- Only topics that are not paused.
SELECT topic, limits FROM tidewheel_topics
WHERE limits IS NOT NULL AND (paused_until IS NULL OR paused_until <= ?) ORDER BY topic LIMIT ?

-- name: due_since
SELECT run_at FROM tidewheel_jobs WHERE number = ?

-- name: limits_of
SELECT limits FROM tidewheel_topics WHERE topic = ?

-- name: limited_topics
SELECT topic FROM tidewheel_topics WHERE limits IS NOT NULL

-- name: count_limited_topics
SELECT count(*) FROM tidewheel_topics WHERE limits IS NOT NULL AND topic <> ?

-- name: set
INSERT INTO tidewheel_topics (topic, limits) VALUES (?, ?)
ON CONFLICT (topic) DO UPDATE SET limits = excluded.limits

-- name: mark_running
-- Jobs that run when a limit is set count, too. An empty limit key puts them into the index of running limited jobs.
UPDATE tidewheel_jobs SET limit_key = '' WHERE state = 2 AND topic = ? AND limit_key IS NULL

-- name: fit_meter
-- Use under the previous rate may reach hours further ahead than this rate allows, and would block the topic as long.
UPDATE tidewheel_rate_meters SET used_until = :furthest
WHERE (topic, tenant, limit_key) = (:topic, '', '') AND used_until > :furthest

-- name: fit_key_meters
UPDATE tidewheel_rate_meters SET used_until = :furthest
WHERE topic = :topic AND (tenant, limit_key) > ('', '') AND used_until > :furthest

-- name: remove
UPDATE tidewheel_topics SET limits = NULL WHERE topic = ?

-- name: delete_plain_topic
-- A row without limits and pause has no effect, and every claim would read it.
DELETE FROM tidewheel_topics WHERE topic = ? AND limits IS NULL AND paused_until IS NULL

-- name: delete_ended_pauses
-- For the same reason.
DELETE FROM tidewheel_topics WHERE limits IS NULL AND paused_until <= ?

-- name: fair_topics
-- Jobs of fair topics are found by tenant in an index of limit keys: a job without a limit key gets an empty one.
SELECT topic FROM tidewheel_topics WHERE limits IS NOT NULL AND json_extract(limits, '$.fair')

-- name: running
SELECT tenant, limit_key, count(*) FROM tidewheel_jobs INDEXED BY tidewheel_jobs_limited
WHERE state = 2 AND limit_key IS NOT NULL AND topic = ?
GROUP BY tenant, limit_key

-- name: has_due
SELECT EXISTS (
    SELECT 1 FROM tidewheel_jobs INDEXED BY tidewheel_jobs_ready WHERE state = 1 AND topic = ? AND task = ?
)

-- name: first_of_lane
-- The first due jobs of a lane.
SELECT -priority, number, tenant, limit_key FROM tidewheel_jobs INDEXED BY tidewheel_jobs_ready
WHERE state = 1 AND topic = ? AND task = ?
ORDER BY priority DESC, number LIMIT ?

-- name: next_key
-- The next limit key of a lane that has due jobs, without reading the jobs between.
SELECT tenant, limit_key FROM tidewheel_jobs INDEXED BY tidewheel_jobs_by_limit_key
WHERE state = 1 AND limit_key IS NOT NULL AND topic = ? AND task = ? AND (tenant, limit_key) > (?, ?)
ORDER BY tenant, limit_key LIMIT 1

-- name: first_of_key
SELECT -priority, number, tenant, limit_key FROM tidewheel_jobs INDEXED BY tidewheel_jobs_by_limit_key
WHERE state = 1 AND limit_key IS NOT NULL AND topic = ? AND task = ? AND {line}
ORDER BY priority DESC, number LIMIT ?

-- name: head_of_key
-- For strict order: the first of the jobs that are running, due, or waiting again after a claim.
SELECT -priority, number, tenant, limit_key, state, task FROM tidewheel_jobs INDEXED BY tidewheel_jobs_in_key_order
WHERE limit_key IS NOT NULL AND (state IN (1, 2) OR state = 0 AND reserves > 0) AND topic = ? AND {line}
ORDER BY number LIMIT 1

-- name: meter
SELECT used_until FROM tidewheel_rate_meters WHERE topic = ? AND {line}

-- name: set_meter
INSERT INTO tidewheel_rate_meters (topic, tenant, limit_key, used_until) VALUES (?, ?, ?, ?)
ON CONFLICT (topic, tenant, limit_key) DO UPDATE SET used_until = excluded.used_until

-- name: mark_granted
-- An empty limit key puts running jobs without one into the index of running limited jobs.
UPDATE tidewheel_jobs SET limit_key = ''
WHERE number IN (SELECT value FROM json_each(?)) AND limit_key IS NULL

-- name: delete_idle_meters
DELETE FROM tidewheel_rate_meters WHERE rowid IN (
    SELECT rowid FROM tidewheel_rate_meters WHERE used_until <= ? ORDER BY used_until LIMIT ?
)
