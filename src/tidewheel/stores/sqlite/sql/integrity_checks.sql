-- name: counters_add_up
SELECT printf('counter of tenant %s, topic %s, task %s, state %d says %d, there are %d',
              tenant, topic, task, state, counted, there)
FROM (
    SELECT tenant, topic, task, state, sum(counted) AS counted, sum(there) AS there
    FROM (
        SELECT tenant, topic, task, state, n AS counted, 0 AS there FROM tidewheel_job_counts
        UNION ALL
        SELECT tenant, topic, task, state, 0, 1 FROM tidewheel_jobs
    )
    GROUP BY tenant, topic, task, state
    HAVING sum(counted) <> sum(there)
)

-- name: bodies_present
SELECT printf('job %d has no body', number) FROM tidewheel_jobs
WHERE number NOT IN (SELECT number FROM tidewheel_bodies)

-- name: bodies_owned
SELECT printf('body %d has no job', number) FROM tidewheel_bodies
WHERE number NOT IN (SELECT number FROM tidewheel_jobs)

-- name: results_owned
SELECT printf('result %d has no completed job', number) FROM tidewheel_results
WHERE number NOT IN (SELECT number FROM tidewheel_jobs WHERE state = 3)

-- name: progress_owned
SELECT printf('progress %d has no job', number) FROM tidewheel_progress
WHERE number NOT IN (SELECT number FROM tidewheel_jobs)

-- name: attempts_owned
SELECT DISTINCT printf('attempts of %d have no job', number) FROM tidewheel_attempts
WHERE number NOT IN (SELECT number FROM tidewheel_jobs)

-- name: steps_owned
SELECT DISTINCT printf('steps of %d have no job', number) FROM tidewheel_steps
WHERE number NOT IN (SELECT number FROM tidewheel_jobs)

-- name: keys_owned
SELECT printf('key %s of %s points to job %d, which does not hold it', k.key, k.scope, k.number)
FROM tidewheel_job_keys k
LEFT JOIN tidewheel_jobs j ON j.number = k.number AND j.key = k.key AND j.tenant = k.tenant
WHERE j.number IS NULL OR (j.key_until = 1 AND j.state > 2)

-- name: keys_held
SELECT printf('job %d has lost its key %s', j.number, j.key)
FROM tidewheel_jobs j
LEFT JOIN tidewheel_job_keys k
    ON k.tenant = j.tenant AND k.scope = CASE j.task WHEN '' THEN j.topic ELSE j.task END
    AND k.key = j.key AND k.number = j.number
WHERE j.key IS NOT NULL AND k.number IS NULL AND NOT (j.key_until = 1 AND j.state > 2)

-- name: running_leased
-- A constraint enforces it, too. This is for files on which constraints were disabled.
SELECT printf('job %d runs without a lease', number) FROM tidewheel_jobs WHERE state = 2 AND leased_until IS NULL

-- name: attempts_within_bounds
SELECT printf('job %d had %d attempts of %d', number, attempt, max_attempts)
FROM tidewheel_jobs WHERE attempt > max_attempts

-- name: retention_respected
-- A time that is too early loses a job; one that is too late, or missing, keeps it for too long.
SELECT printf('job %d is not to be pruned when its retention ends', number) FROM tidewheel_jobs
WHERE prune_at IS NOT CASE WHEN state < 3 OR has_dependents OR (state = 4 AND buried) THEN NULL
                           WHEN state = 4 THEN finished_at + retention_failed_us
                           ELSE finished_at + retention_us END

-- name: sequences_ahead
SELECT printf('sequence %s is behind', name) FROM tidewheel_sequences
WHERE value < (SELECT max(CASE tidewheel_sequences.name WHEN 'fence' THEN fence ELSE number END) FROM tidewheel_jobs)

-- name: sequences_present
-- Without them, jobs get no number and leases no fence.
SELECT printf('sequence %s is missing', name)
FROM (SELECT 'fence' AS name UNION ALL SELECT 'number')
WHERE name NOT IN (SELECT name FROM tidewheel_sequences)

-- name: errors_summed_up
SELECT DISTINCT printf('job %d has attempts, but no error', j.number)
FROM tidewheel_attempts a JOIN tidewheel_jobs j ON j.number = a.number
WHERE j.error_summary IS NULL

-- name: blocked_add_up
SELECT printf('job %d says it waits for %d jobs, there are %d', j.number, j.blocked,
              (SELECT coalesce(sum(d.unresolved), 0) FROM tidewheel_dependencies d WHERE d.child = j.number))
FROM tidewheel_jobs j
WHERE j.state < 2
    AND j.blocked <> (SELECT coalesce(sum(d.unresolved), 0) FROM tidewheel_dependencies d WHERE d.child = j.number)

-- name: blocked_jobs_have_parents
SELECT printf('job %d waits for a job that has ended or is gone', j.number)
FROM tidewheel_jobs j JOIN tidewheel_dependencies d ON d.child = j.number AND d.unresolved = 1
LEFT JOIN tidewheel_jobs p ON p.id = d.parent
WHERE j.state < 2 AND (p.number IS NULL OR p.state > 2)
    AND NOT EXISTS (SELECT 1 FROM tidewheel_ended_parents e WHERE e.parent = d.parent)

-- name: parents_flagged
SELECT DISTINCT printf('job %d does not know that others run after it', p.number)
FROM tidewheel_dependencies d JOIN tidewheel_jobs p ON p.id = d.parent WHERE p.has_dependents = 0

-- name: dependencies_owned
SELECT DISTINCT printf('dependencies of %d have no job', child) FROM tidewheel_dependencies
WHERE child NOT IN (SELECT number FROM tidewheel_jobs)
