-- name: take_key
-- Returns no row if the key is taken.
INSERT INTO tidewheel_job_keys (tenant, scope, key, number) VALUES (?, ?, ?, ?)
ON CONFLICT (tenant, scope, key) DO NOTHING
RETURNING number

-- name: key_holder
SELECT j.number, j.id, j.state, j.created_at, j.run_at, j.attempt, j.tenant, j.topic, j.task, j.blocked
FROM tidewheel_jobs j WHERE j.number = (SELECT number FROM tidewheel_job_keys WHERE {key})

-- name: has_saved
-- Whether a run saved a checkpoint or steps, which belong to the payload it had.
SELECT EXISTS (SELECT 1 FROM tidewheel_progress WHERE number = :number AND checkpoint IS NOT NULL)
    OR EXISTS (SELECT 1 FROM tidewheel_steps WHERE number = :number)

-- name: replace_job
UPDATE tidewheel_jobs SET state = ?, priority = ?, run_at = ?, expires_at = ? WHERE number = ?

-- name: replace_body
UPDATE tidewheel_bodies SET format = ?, payload = ? WHERE number = ?

-- name: key_taken
SELECT EXISTS (SELECT 1 FROM tidewheel_job_keys WHERE {key})

-- name: topics_with_jobs
SELECT DISTINCT topic FROM tidewheel_job_counts WHERE n > 0

-- name: count_active
SELECT coalesce(sum(n), 0) FROM tidewheel_job_counts WHERE topic = ? AND state <= 2
