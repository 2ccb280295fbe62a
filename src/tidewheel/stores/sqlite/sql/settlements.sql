-- name: held
-- The jobs of some leases. {ids} becomes one parameter for each lease. The caller checks fence, state and lease end in
-- the same transaction.
SELECT id, number, state, fence, leased_until, topic, task, tenant, run_at, attempt, max_attempts, worker,
       started_at, cancel_requested, key, key_until, counts_if_lost, blocked, has_dependents
FROM tidewheel_jobs WHERE id IN ({ids})

-- name: complete
-- {rows} becomes one (number, fence, started_at) for each job, filled up with numbers that no job has.
-- A recorded start is kept. The statement checks the fence itself, because the row of a usual completion is not read
-- before. {without_dependents} leaves out jobs that others run after: those are settled one by one.
UPDATE tidewheel_jobs
SET state = 3, finished_at = ?, started_at = coalesce(started_at, ends.column3),
    leased_until = NULL, prune_at = ? + retention_us, suspect = 0, cancel_requested = 0
FROM (VALUES {rows}) AS ends
WHERE tidewheel_jobs.number = ends.column1 AND fence = ends.column2 AND state = 2 AND leased_until > ?
    {without_dependents}

-- name: fail
-- buried: failed by the verb bury. Such a job is not pruned, and waits until it is kicked.
UPDATE tidewheel_jobs
SET state = 4, finished_at = :now, started_at = coalesce(:started_at, started_at), leased_until = NULL,
    prune_at = CASE WHEN :buried THEN NULL ELSE :now + retention_failed_us END, suspect = 0,
    cancel_requested = 0, error_summary = :summary, buried = :buried, buries = buries + :buried,
    priority = coalesce(:priority, priority), blocked = 0
WHERE number = :number

-- name: uncount
-- A run that was given back is not an attempt, even if the job ends with it.
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
-- suspect stays as it is, because a job that was given back before its start has shown nothing.
UPDATE tidewheel_jobs
SET state = :state, run_at = :run_at, priority = coalesce(:priority, priority), attempt = attempt - 1,
    leased_until = NULL, worker = NULL, claimed_at = NULL, started_at = NULL, counts_if_lost = 0,
    releases = releases + :counted, reserves = reserves - :untaken
WHERE number = :number

-- name: record_ended_parent
-- For dependencies.py, which deletes the row after all children are resolved.
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
-- leases_at: nearly always now. After a pause in which no lease could be written, the time at which the pause began.
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
SELECT number, attempt, worker, started_at FROM tidewheel_jobs
WHERE id = ? AND fence = ? AND state = 2 AND leased_until > ?

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
-- A step with this name was reported before, and its response was lost.
INSERT INTO tidewheel_steps (number, name, ordinal, attempt, worker, started_at, finished_at, output)
VALUES (
    :number, :name, (SELECT coalesce(max(ordinal), 0) + 1 FROM tidewheel_steps WHERE number = :number),
    :attempt, :worker, :started_at, :finished_at, :output
)
ON CONFLICT (number, name) DO NOTHING

-- name: cancel_requests
SELECT id, fence FROM tidewheel_jobs WHERE state = 2 AND cancel_requested = 1 AND leased_until > ?
