-- name: ended_leases
-- '<=': at its end a lease no longer holds, and its holder is refused from the same instant.
SELECT id, correlation_id FROM tidewheel_jobs WHERE state = 2 AND leased_until <= ? ORDER BY leased_until LIMIT ?

-- name: count_timeout
-- Of a job that ends with its lease.
UPDATE tidewheel_jobs SET attempt = ?, timeouts = timeouts + 1 WHERE number = ?

-- name: put_back
UPDATE tidewheel_jobs
SET state = 1, attempt = :attempt, suspect = 1, counts_if_lost = 0, leased_until = NULL, worker = NULL,
    claimed_at = NULL, started_at = NULL, error_summary = coalesce(:summary, error_summary),
    timeouts = timeouts + 1
WHERE number = :number

-- name: expired
SELECT id, correlation_id FROM tidewheel_jobs
WHERE state < 2 AND attempt = 0 AND expires_at IS NOT NULL AND expires_at <= ?
ORDER BY expires_at LIMIT ?
