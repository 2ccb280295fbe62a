-- name: held
-- The rows behind some leases. {ids} becomes as many parameters as there are leases. Fence, state and end are judged by the caller in the same transaction.
SELECT id, number, state, fence, leased_until, topic, task, tenant, run_at, attempt, max_attempts, worker,
       started_at, cancel_requested, key, key_until, counts_if_lost, blocked, has_dependents
FROM tidewheel_jobs WHERE id IN ({ids})

-- name: complete
-- {rows} becomes as many (number, fence, started_at) as there are jobs, or a few more with a number that no job has.
-- A start that was recorded stands.
-- Fenced by itself, because the usual completion comes without a look at the row before.
-- {awaited}: a job that others wait for is looked at.
UPDATE tidewheel_jobs
SET state = 3, finished_at = ?, started_at = coalesce(started_at, ends.column3),
    leased_until = NULL, prune_at = ? + retention_us, suspect = 0, cancel_requested = 0
FROM (VALUES {rows}) AS ends
WHERE tidewheel_jobs.number = ends.column1 AND fence = ends.column2 AND state = 2 AND leased_until > ? {without_dependents}

-- name: fail
-- buried: put away by a verb; kept until somebody kicks it.
UPDATE tidewheel_jobs
SET state = 4, finished_at = :now, started_at = coalesce(:started_at, started_at), leased_until = NULL,
    prune_at = CASE WHEN :buried THEN NULL ELSE :now + retention_failed_us END, suspect = 0,
    cancel_requested = 0, error_summary = :summary, buried = :buried, buries = buries + :buried,
    priority = coalesce(:priority, priority), blocked = 0
WHERE number = :number

-- name: uncount
-- A run that was given back is not an attempt, also when the job ends with it.
UPDATE tidewheel_jobs SET attempt = attempt - 1 WHERE number = ?

-- name: cancel
UPDATE tidewheel_jobs
SET state = 5, finished_at = :now, started_at = coalesce(:started_at, started_at), leased_until = NULL,
    prune_at = :now + retention_us, suspect = 0, cancel_requested = 0, error_summary = :summary, blocked = 0
WHERE number = :number

-- name: retry
UPDATE tidewheel_jobs
SET state = :state, run_at = :run_at, leased_until = NULL, worker = NULL, claimed_at = NULL,
    started_at = NULL, suspect = 0, counts_if_lost = 0, error_summary = :summary
WHERE number = :number

-- name: release
-- suspect stays: a job given back unstarted has proved nothing.
UPDATE tidewheel_jobs
SET state = :state, run_at = :run_at, priority = coalesce(:priority, priority), attempt = attempt - 1,
    leased_until = NULL, worker = NULL, claimed_at = NULL, started_at = NULL, counts_if_lost = 0,
    releases = releases + :counted, reserves = reserves - :untaken
WHERE number = :number

-- name: record_ended_parent
-- Left for who sees to those that wait; it stays as long as they do.
INSERT INTO tidewheel_ended_parents (parent, state) SELECT id, ? FROM tidewheel_jobs WHERE number = ?
ON CONFLICT (parent) DO UPDATE SET state = excluded.state

-- name: keep_for_dependents
UPDATE tidewheel_jobs SET prune_at = NULL WHERE number = ?

-- name: release_key
DELETE FROM tidewheel_job_keys WHERE {key} AND number = ?

-- name: add_attempt
INSERT INTO tidewheel_attempts (number, ordinal, attempt, worker, started_at, ended_at, error)
VALUES (
    :number, (SELECT coalesce(max(ordinal), 0) + 1 FROM tidewheel_attempts WHERE number = :number),
    :attempt, :worker, :started_at, :ended_at, :error
)
RETURNING ordinal

-- name: drop_attempt
DELETE FROM tidewheel_attempts WHERE number = ? AND ordinal = ?

-- name: extend
-- leases_at: nearly always now; after a time in which nobody could write, when that began.
UPDATE tidewheel_jobs SET leased_until = :now + :lease_us
WHERE id = :id AND fence = :fence AND state = 2 AND leased_until > :leases_at

-- name: extend_longer
UPDATE tidewheel_jobs SET leased_until = max(leased_until, :now + :lease_us)
WHERE id = :id AND fence = :fence AND state = 2 AND leased_until > :leases_at

-- name: start
UPDATE tidewheel_jobs
SET started_at = coalesce(started_at, :now - :run_us), counts_if_lost = counts_if_lost OR :alone
WHERE id = :id AND fence = :fence AND state = 2 AND leased_until > :leases_at

-- name: leased
SELECT number, attempt, worker, started_at FROM tidewheel_jobs WHERE id = ? AND fence = ? AND state = 2 AND leased_until > ?

-- name: record_start
UPDATE tidewheel_jobs SET started_at = ? WHERE number = ?

-- name: set_progress
INSERT INTO tidewheel_progress (number, percent, message, stage, updated_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (number) DO UPDATE
SET percent = excluded.percent, message = excluded.message, stage = excluded.stage,
    updated_at = excluded.updated_at

-- name: set_checkpoint
INSERT INTO tidewheel_progress (number, checkpoint) VALUES (?, ?)
ON CONFLICT (number) DO UPDATE SET checkpoint = excluded.checkpoint

-- name: add_step
-- A name that is there already was reported before, and the answer was lost.
INSERT INTO tidewheel_steps (number, name, ordinal, attempt, worker, started_at, finished_at, output)
VALUES (
    :number, :name, (SELECT coalesce(max(ordinal), 0) + 1 FROM tidewheel_steps WHERE number = :number),
    :attempt, :worker, :started_at, :finished_at, :output
)
ON CONFLICT (number, name) DO NOTHING

-- name: cancel_requests
SELECT id, fence FROM tidewheel_jobs WHERE state = 2 AND cancel_requested = 1 AND leased_until > ?
