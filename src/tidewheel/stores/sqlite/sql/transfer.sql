-- name: export
-- The columns of get in job_queries.sql, followed by columns that no other query returns. For jobs of all tenants.
SELECT {columns}, b.format, b.payload, r.result, p.checkpoint, j.retry,
       j.headers, j.lease_us, j.reserves, j.timeouts, j.releases, j.buries, j.kicks, j.touches,
       EXISTS (SELECT 1 FROM tidewheel_attempts a WHERE a.number = j.number),
       EXISTS (SELECT 1 FROM tidewheel_steps s WHERE s.number = j.number),
       EXISTS (SELECT 1 FROM tidewheel_dependencies d WHERE d.child = j.number),
       j.key_until, j.expires_at, j.retention_us, j.retention_failed_us, j.suspect, j.counts_if_lost, j.buried
FROM tidewheel_jobs j
JOIN tidewheel_bodies b ON b.number = j.number
LEFT JOIN tidewheel_progress p ON p.number = j.number
LEFT JOIN tidewheel_results r ON r.number = j.number
WHERE j.number < ?
ORDER BY j.number DESC LIMIT ?

-- name: existing
-- The jobs that have this id or this number, of any tenant.
SELECT id, number FROM tidewheel_jobs WHERE id = ?
UNION
SELECT id, number FROM tidewheel_jobs WHERE number = ?

-- name: key_holder
SELECT id FROM tidewheel_jobs WHERE number = (SELECT number FROM tidewheel_job_keys WHERE {key})

-- name: raise_sequence
UPDATE tidewheel_sequences SET value = max(value, ?) WHERE name = ?
