-- name: expired_leases
-- '<=', because a lease no longer holds at its end: its holder is refused from the same moment.
SELECT id, correlation_id FROM tidewheel_jobs WHERE state = 2 AND leased_until <= ? ORDER BY leased_until LIMIT ?

-- name: count_timeout
-- For a job that ends together with its lease.
UPDATE tidewheel_jobs SET attempt = ?, timeouts = timeouts + 1 WHERE number = ?

-- name: return_to_ready
UPDATE tidewheel_jobs
SET state = 1, attempt = :attempt, suspect = 1, counts_if_lost = 0, leased_until = NULL, worker = NULL,
    claimed_at = NULL, started_at = NULL, error_summary = coalesce(:summary, error_summary),
    timeouts = timeouts + 1
WHERE number = :number

-- name: expired_jobs
SELECT id, correlation_id FROM tidewheel_jobs
WHERE state < 2 AND attempt = 0 AND expires_at IS NOT NULL AND expires_at <= ?
ORDER BY expires_at LIMIT ?

-- name: overdue_jobs
-- Jobs whose retention has ended, in the order of the index. Anything that keeps a job from being removed belongs into
-- this condition. size: about how many bytes are freed. length() does not read the value.
SELECT j.number, j.state, j.tenant, j.topic, j.task, j.key,
       coalesce((SELECT length(b.payload) FROM tidewheel_bodies b WHERE b.number = j.number), 0)
       + coalesce((SELECT length(r.result) FROM tidewheel_results r WHERE r.number = j.number), 0)
       + coalesce((SELECT length(p.checkpoint) FROM tidewheel_progress p WHERE p.number = j.number), 0)
       + coalesce((SELECT sum(length(s.output)) FROM tidewheel_steps s WHERE s.number = j.number), 0) AS size
FROM tidewheel_jobs j
WHERE j.prune_at IS NOT NULL AND j.prune_at <= ? ORDER BY j.prune_at LIMIT ?

-- name: delete_old_minutes
DELETE FROM tidewheel_minute_metrics WHERE minute < ?

-- name: delete_old_lane_minutes
DELETE FROM tidewheel_lane_minute_metrics WHERE minute < ?

-- name: delete_zero_counts
DELETE FROM tidewheel_job_counts WHERE n = 0
