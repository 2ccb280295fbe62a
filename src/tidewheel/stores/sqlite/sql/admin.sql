-- name: find
-- {columns}: the fields of the row type in settlements.py.
SELECT {columns} FROM tidewheel_jobs WHERE {tenant} AND id = ?

-- name: requeue
UPDATE tidewheel_jobs
SET state = 1, blocked = 0, run_at = :now, attempt = 0, finished_at = NULL, prune_at = NULL, started_at = NULL,
    claimed_at = NULL, worker = NULL, suspect = 0, counts_if_lost = 0, cancel_requested = 0, expires_at = NULL,
    buried = 0, kicks = kicks + :kicks
WHERE number = :number

-- name: take_key_again
INSERT INTO tidewheel_job_keys (tenant, scope, key, number) VALUES (?, ?, ?, ?)
ON CONFLICT (tenant, scope, key) DO NOTHING

-- name: key_number
SELECT number FROM tidewheel_job_keys WHERE {key}

-- name: delete_result
DELETE FROM tidewheel_results WHERE number = ?

-- name: delete_progress
-- The checkpoint stays, because the next run continues from it.
UPDATE tidewheel_progress SET percent = NULL, message = NULL, stage = NULL, updated_at = NULL WHERE number = ?

-- name: request_cancel
UPDATE tidewheel_jobs SET cancel_requested = 1 WHERE number = ?

-- name: pause
INSERT INTO tidewheel_topics (topic, paused_until) VALUES (?, ?)
ON CONFLICT (topic) DO UPDATE SET paused_until = excluded.paused_until

-- name: resume
UPDATE tidewheel_topics SET paused_until = NULL WHERE topic = ?
